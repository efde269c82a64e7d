// On a screen of WIDTH, DARK or not: all can be read and reached.
const root = document.documentElement;
check("the screen is as wide as it should be", window.innerWidth === WIDTH);
check("nothing sticks out", root.scrollWidth <= WIDTH && document.body.scrollWidth <= WIDTH);
check("the diagram is no wider than its place", box.scrollWidth <= box.clientWidth);
const boxOf = (node) => node.getBoundingClientRect();
const findings = boxOf($("findings")), diagram = boxOf($("diagram"));
check("what happened is in front of the packets", WIDTH < 900 ? findings.top < diagram.top : findings.left < diagram.left);
check("and can be seen at once", findings.top < window.innerHeight / 2 && findings.height > 0);
const texts = [...document.querySelectorAll("#diagram text")];
check("each word of the diagram is inside it", texts.every((text) => boxOf(text).left >= diagram.left - 1 && boxOf(text).right <= diagram.right + 1));
// Text against the paper it stands on (WCAG 2: at least 4.5 for text, 3 for large marks).
const light = (color) => {
  const [r, g, b] = color.match(/[\d.]+/g).slice(0, 3).map((n) => { const c = n / 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const contrast = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
const paper = getComputedStyle(document.body).backgroundColor, panel = getComputedStyle($("left")).backgroundColor;
check("the paper is as the computer is set", (light(paper) < 0.1) === DARK);
check("text can be read", contrast(getComputedStyle(document.body).color, paper) > 7 && contrast(getComputedStyle(document.querySelector(".soft")).color, panel) >= 4.5);
for (const text of document.querySelectorAll("g.packet text")) if (contrast(getComputedStyle(text).fill, paper) < 4) { check(`"${text.textContent}" can be read`, false); break; }
// The legend, and what it explains.
$("legend").open = true;
const kinds = new Set([...document.querySelectorAll("#drawn li")].map((item) => item.dataset.kind));
const used = [...document.querySelectorAll("g.packet")].map((group) => CLASSES.find((name) => group.classList.contains(name)));
if (document.querySelector("g.packet .cross")) used.push("lost");
if (document.querySelector("#diagram .missing")) used.push("missing");
if (document.querySelector("#diagram .pause")) used.push("pause");
for (const path of document.querySelectorAll("#diagram .bracket")) used.push(path.classList.contains("again") ? "message-again" : path.classList.contains("nak") ? "message-nak" : "message");
for (const item of document.querySelectorAll("#findings li")) used.push(item.className);
check(`the legend names every mark that is drawn: ${used.filter((kind) => !kinds.has(kind)).join(", ") || "all"}`, used.every((kind) => kinds.has(kind)));
check("and there are many of them", used.length > 5 && (WIDTH < 900 || ["lost", "pause", "again", "nak", "answer", "message-again", "repaired"].every((kind) => used.includes(kind))));
check("with words that can be seen", [...document.querySelectorAll("#drawn li")].every((item) => item.textContent.trim().length > 2 && item.title.length > 2));
// A packet, by tapping it.
drawn()[0].querySelector(".hit").dispatchEvent(new MouseEvent("click", { bubbles: true }));
const detail = $("detail"), psn = [...detail.querySelectorAll("details.field")].find((row) => row.querySelector("span").textContent === "PSN");
check("a tap shows the packet on the screen", boxOf(detail).top < window.innerHeight && detail.textContent.includes("Packet 1"));
check("a field has a meaning, a unit and a source", psn && psn.textContent.includes("24 bits") && psn.textContent.includes("IBTA 9.2") && psn.querySelector("summary").title.includes("Packet sequence number"));
psn.querySelector("summary").click();
await until("which a tap opens", () => psn.open && boxOf(psn.querySelector("p")).height > 0 && opened.has("bth.psn"));
key("j");
const next = [...detail.querySelectorAll("details.field")].find((row) => row.querySelector("span").textContent === "PSN");
check("and stays open for the next packet", next !== psn && next.open && detail.textContent.includes("Packet 2"));
