// A capture of some packets with a loss: pointing, clicking, filtering, typing.
const all = state.rows.length;
check("packets are drawn", drawn().length > 0 && drawn().length <= all);
check("nothing hostile became an element", document.querySelectorAll("img, iframe, object, embed").length === 0 && !window.pwned);
// Filters.
$("odd").checked = true; $("odd").dispatchEvent(new Event("change"));
check("anomalies only", state.rows.length < all && state.rows.length > 0);
$("odd").checked = false; $("odd").dispatchEvent(new Event("change"));
change("text", "0x100003");
check("text", state.rows.length > 0 && state.rows.every((packet) => packet[PSN] === 0x100003));
change("text", "");
change("opcode", $("opcode").options[1].value);
check("opcode", state.rows.length > 0 && new Set(state.rows.map((packet) => packet[OP])).size === 1);
change("opcode", "");
check("all again", state.rows.length === all);
// Pointing.
const group = drawn()[1];
group.querySelector(".hit").dispatchEvent(new MouseEvent("mousemove", { bubbles: true }));
check("pointing shows the packet", $("detail").textContent.includes("Packet 2"));
check("pointing highlights others", document.querySelectorAll("g.packet.related").length > 1 && $("diagram").getAttribute("class") === "hovering");
drawn()[0].querySelector(".hit").dispatchEvent(new MouseEvent("click", { bubbles: true }));
$("diagram").dispatchEvent(new MouseEvent("mouseleave"));
check("a click keeps the packet", state.selected === state.rows[0] && $("detail").textContent.includes("destination QP"));
// Keys.
key("j");
check("next packet", state.selected === state.rows[1]);
key("n");
check("next anomaly", isOdd(state.selected));
const height = $("space").style.height;
key("-"); key("-");
check("zoom", parseFloat($("space").style.height) < parseFloat(height));
key("0");
$("findings").querySelector("li").click();
check("a finding leads to its packet", state.conversation.findings[0].packets.includes(state.selected[NUMBER]));
check("findings are listed", document.querySelectorAll("#findings li").length === state.conversation.findings.length);
check("with a mark each, which the list of keys explains", [...document.querySelectorAll("#findings li b")].every((mark) =>
  mark.textContent === "*" && mark.title === "was repaired, and cost time" && $("marks").textContent.includes(mark.textContent + mark.title)));
key("Escape");
key("j", $("odd"));
check("keys work beside a box that was ticked", state.selected === state.rows[0]);
key("Escape");
check("let go", state.selected === null);
