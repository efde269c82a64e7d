// Stands in front of the scripts that tests/dissect_page.rs runs inside the page. They do what a person would do, and check what
// the page then shows.
const said = [];
const check = (name, holds) => { said.push(`${holds ? "ok" : "WRONG"} ${name}`); };
// The page draws what was scrolled in a later frame. Once something is wrong nothing is waited for any more.
let patience = 60e3;
const until = async (name, holds) => {
  const deadline = performance.now() + patience;
  while (!holds() && performance.now() < deadline) await new Promise(requestAnimationFrame);
  check(name, holds());
  if (!holds()) patience = 0;
};
const drawn = () => [...document.querySelectorAll("g.packet")];
const numbers = () => drawn().map((group) => Number(group.dataset.number));
const key = (name, where = document) => where.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true }));
const change = (id, value) => { $(id).value = value; $(id).dispatchEvent(new Event(id === "text" ? "input" : "change")); };

// On the screen.
const box = $("scroll");
const yOf = (group) => group.querySelector(".shaft").getBoundingClientRect().top - box.getBoundingClientRect().top;
// The packet that somebody points at, so far below the upper edge.
const packetAt = (y) => {
  const around = box.getBoundingClientRect();
  const hit = document.elementFromPoint(around.left + around.width / 2, around.top + y);
  const group = hit && hit.closest("g.packet");
  return group ? Number(group.dataset.number) : null;
};
// Those that can be pointed at, below the names of the two ends.
const seen = () => drawn().filter((group) => packetAt(yOf(group)) === Number(group.dataset.number)).map((group) => Number(group.dataset.number));
const isSeen = (number) => seen().includes(number);
const middle = () => {
  const away = (group) => Math.abs(yOf(group) - box.clientHeight / 2);
  const nearest = drawn().reduce((best, group) => best && away(best) <= away(group) ? best : group, null);
  return nearest && Number(nearest.dataset.number);
};
const inTheMiddle = (number, give) => middle() !== null && Math.abs(middle() - number) <= give;
const scrollTo = (share) => { box.scrollTop = (box.scrollHeight - box.clientHeight) * share; };
