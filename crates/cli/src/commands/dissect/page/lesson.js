
// ---- The lesson in front of the diagram. It draws by the functions above, and from the same packets.
const lesson = data.lesson;
// So many arrows of an operation are drawn at its beginning and at its end.
const AT_FIRST = 5, AT_LAST = 2;

// Each spelling that a text may have, and the word that it leads to. Common words of English mean themselves.
const COMMON = new Set(["state", "port", "timeout", "device", "nic", "reads", "writes", "sends", "adapter", "ib", "connected", "read", "write", "send", "recv"]);
const byText = new Map();
for (const word of lesson.words) for (const spelling of word.spellings) {
  if (/^[A-Za-z0-9_ -]+$/.test(spelling) && !COMMON.has(spelling)) byText.set(spelling.length > 4 && spelling !== spelling.toUpperCase() ? spelling.toLowerCase() : spelling, word);
}
for (const [text, name] of [["post", "WR"], ["posts", "WR"], ["posted", "WR"], ["send", "SEND"], ["key", "rkey"], ["acknowledges", "ACK"], ["receive", "RECEIVE"], ["immediate", "immediate"]]) {
  byText.set(text, lesson.words.find((word) => word.name === name));
}
const longest = [...byText.keys()].sort((a, b) => b.length - a.length);
const pattern = new RegExp("(?<![\\w-])(" + longest.map((text) => text.replace(/[-]/g, "\\-")).join("|") + ")(?![\\w-])", "gi");
const used = new Map();
const anchor = (word) => "word-" + word.name.replace(/[^A-Za-z0-9_]+/g, "-");

// Text in which each word is a link the first time.
function linked(text) {
  const parts = [], seen = new Set();
  let from = 0;
  for (const match of text.matchAll(pattern)) {
    const found = match[0], word = byText.get(found) || byText.get(found.toLowerCase());
    if (!word || seen.has(word)) continue;
    seen.add(word);
    used.set(word.name, word);
    const link = html("a", found);
    link.href = "#" + anchor(word);
    link.title = `${word.long}: ${word.what}`;
    parts.push(text.slice(from, match.index), link);
    from = match.index + found.length;
  }
  parts.push(text.slice(from));
  return parts;
}

// The packets of so many requests of A's, with their answers.
function packetsOf(first, count) {
  const found = conversations[0], own = byConversation.get(found.id) || [];
  const ids = new Set(Array.from({ length: count }, (_, n) => first + n));
  const answers = new Set(found.messages.filter((message) => message[0] === 0 && ids.has(message[1])).map((message) => message[6]));
  return own.filter((packet) => (packet[SIDE] === 0 && ids.has(packet[MESSAGE])) || answers.has(packet[NUMBER]));
}

function sequence(packets) {
  const box = html("div", undefined, "sequence"), svg = el("svg", { role: "img", "aria-label": "packets of this operation, time downwards" });
  box.append(svg);
  const skips = packets.length > AT_FIRST + AT_LAST + 1;
  const drawn = skips ? [...packets.slice(0, AT_FIRST), null, ...packets.slice(-AT_LAST)] : packets;
  const paint = () => {
    const width = Math.max(280, box.clientWidth), narrow = width < NARROW, row = narrow ? 32 : 22;
    const margin = narrow ? 26 : 110, left = margin, right = width - margin, height = row * (drawn.length + 1) + 12;
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("height", height);
    const nodes = [left, right].map((x) => el("line", { class: "life", x1: x, x2: x, y1: 4, y2: height - 4 }));
    nodes.push(el("text", { class: "head", x: 8, y: 16 }, "this process"), el("text", { class: "head", x: width - 8, y: 16, "text-anchor": "end" }, "the peer"));
    drawn.forEach((packet, n) => {
      const y = row * (n + 1) + 6;
      if (packet === null) nodes.push(el("text", { class: "soft", x: width / 2, y, "text-anchor": "middle" }, `\u22ee ${packets.length - AT_FIRST - AT_LAST} more packets`));
      else nodes.push(arrow(packet, n, y, left, right, true, false, narrow));
    });
    svg.replaceChildren(...nodes);
  };
  svg.addEventListener("click", (event) => {
    const group = event.target.closest && event.target.closest("g.packet");
    if (!group) return;
    show(Number(group.dataset.number));
    $("top").scrollIntoView({ behavior: "smooth" });
  });
  window.addEventListener("resize", paint);
  return [box, paint];
}

$("lead").append(...linked("Two processes of this machine, each with a queue pair (QP) of the software NIC rnic0, connected as RC. "
  + "Everything below has just happened: the arrows are the packets that were sent, as RoCEv2, and every byte was checked. A word leads to its explanation."));
$("arrows").append(...linked("At each arrow: the time in seconds, the kind of the packet, its PSN, its bytes, and its number in the diagram of all packets below."));
let first = 1;
for (const operation of lesson.operations) {
  const section = html("section"), title = html("h2"), text = html("p");
  title.append(...linked(operation.title));
  text.append(...linked(operation.text));
  const [box, paint] = sequence(packetsOf(first, operation.requests));
  first += operation.requests;
  section.append(title, text, box, html("p", operation.result, "result"));
  $("operations").append(section);
  paint();
}
for (const word of [...used.values()].sort((a, b) => a.name.localeCompare(b.name))) {
  const term = html("dt", word.name), meaning = html("dd");
  term.id = anchor(word);
  term.append(html("small", word.long));
  const code = (name, words) => {
    const row = html("span", `${name}: `);
    row.append(html("code", words));
    return row;
  };
  meaning.append(html("span", `${word.what} ${word.why}`), code("C", word.c), code("Rust", word.rust), html("small", word.source, "soft"));
  $("words").append(term, meaning);
}
layout();
