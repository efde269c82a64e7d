// Thousands of packets, evenly spaced and numbered from 1: ALL of them; at FINDING's end, far below, is NAK.
const MOST = 100;
const all = data.packets.map((packet) => packet[NUMBER]);
const ACK = data.opcodes.indexOf("ACK");
const acks = data.packets.filter((packet) => packet[OP] === ACK).map((packet) => packet[NUMBER]);
// A few of `list`, in order and without a hole.
const areOf = (list) => {
  const now = numbers(), first = list.indexOf(now[0]);
  return now.length > 0 && now.length < MOST && now.every((number, index) => number === list[first + index]);
};
// And they fill what can be seen, from its first row to the last one.
const shows = (list) => {
  const now = numbers();
  const top = now[0] === list[0] || packetAt(50) !== null;
  const bottom = now[now.length - 1] === list[list.length - 1] || packetAt(box.clientHeight - 20) !== null;
  return areOf(list) && top && bottom;
};

check("the page has them all", all.length === ALL && all[0] === 1 && all[ALL - 1] === ALL && state.rows.length === ALL);
check("it begins with the first ones", shows(all) && isSeen(1) && !numbers().includes(MOST));

// The scroll bar.
scrollTo(1 / 2);
await until("the middle", () => shows(all) && inTheMiddle(ALL / 2, 3));
scrollTo(1);
await until("the end", () => shows(all) && isSeen(ALL));
scrollTo(1 / 4);
await until("back to a quarter", () => shows(all) && inTheMiddle(ALL / 4, ALL / 100));
scrollTo(0);
await until("the start", () => shows(all) && isSeen(1));
const met = new Set();
for (let top = 0, before = 0; top < box.scrollHeight; top += box.clientHeight - 100) {
  box.scrollTop = top;
  await until(`at ${top}`, () => shows(all) && (middle() > before || isSeen(ALL)));
  before = middle();
  for (const number of seen()) met.add(number);
}
check("each packet is seen on the way from the start to the end", met.size === ALL);

// Keys.
key("Home");
check("Home", shows(all) && isSeen(1) && state.selected[NUMBER] === 1);
key("End");
check("End", shows(all) && isSeen(ALL) && state.selected[NUMBER] === ALL);
key("k");
check("the one before", isSeen(ALL - 1) && state.selected[NUMBER] === ALL - 1);
key("Home");
for (let n = 1; n < 60; n++) key("j");
check("one after the other, beyond the lower edge", shows(all) && isSeen(60) && state.selected[NUMBER] === 60);

// A finding.
key("Escape");
scrollTo(0);
await until("the start again", () => isSeen(1));
check("the finding's packets are far away", !numbers().includes(NAK));
document.querySelectorAll("#findings li")[FINDING].click();
check("a finding brings its packet into view", shows(all) && isSeen(NAK) && $("detail").textContent.includes(`Packet ${NAK}`));
check("which is marked", document.querySelector("g.packet.selected").dataset.number === String(NAK));
await until("and stays there", () => shows(all) && isSeen(NAK));
check("the packet that was lost, too", document.querySelectorAll("g.packet .cross").length === 1);

// Filters, far below.
key("Escape");
scrollTo(1 / 2);
await until("the middle again", () => inTheMiddle(ALL / 2, 3));
change("opcode", String(ACK));
await until("the middle of the filtered ones", () => shows(acks) && inTheMiddle(ALL / 2, 6));
scrollTo(1);
await until("the end of the filtered ones", () => shows(acks) && isSeen(acks[acks.length - 1]));
scrollTo(0);
await until("the start of the filtered ones", () => shows(acks) && isSeen(acks[0]));
key("End");
change("opcode", "");
await until("all, where the last one was", () => shows(all) && isSeen(acks[acks.length - 1]));
key("Escape");
scrollTo(1);
await until("the end again", () => isSeen(ALL));
change("text", hex(7, 6));
await until("few rows come into view from the end", () => drawn().length === 2 && seen().length === 2);
change("text", "nothing has this");
await until("none", () => drawn().length === 0 && $("count").textContent.startsWith("0 of"));
change("text", "");
await until("all again", () => shows(all));

// A packet found by a filter stays in view among its neighbours.
key("a");
await until("anomalies", () => state.rows.length < MOST && numbers().includes(NAK));
document.querySelector(`g.packet[data-number="${NAK}"] .hit`).dispatchEvent(new MouseEvent("click", { bubbles: true }));
key("a");
await until("among all", () => shows(all) && isSeen(NAK - 1) && isSeen(NAK) && isSeen(NAK + 10));
// One that the filter takes away is where the keys go on from.
change("text", hex(9, 6));
key("k");
check("the one before what is hidden", state.selected[NUMBER] < NAK && state.selected === state.rows[state.rows.length - 1]);
change("text", "");

// Zoom.
key("Escape");
scrollTo(1 / 2);
await until("the middle once more", () => inTheMiddle(ALL / 2, 3));
for (let n = 0; n < 8; n++) key("-");
await until("smaller", () => inTheMiddle(ALL / 2, 6) && drawn().length > MOST && drawn().length < 400);
for (let n = 0; n < 20; n++) key("+");
await until("larger", () => areOf(all) && drawn().length < 10 && inTheMiddle(ALL / 2, 6));
key("End");
await until("the end of the largest", () => areOf(all) && isSeen(ALL));
