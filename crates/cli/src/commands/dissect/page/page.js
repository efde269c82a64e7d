"use strict";
// Everything from the capture reaches the page as text (textContent, setAttribute), never as markup.
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const NS = "http://www.w3.org/2000/svg";
// Fields of a packet, in the order in which html.rs writes them.
const [NUMBER, TIME, CONV, FROM, OP, PSN, LEN, SIDE, MESSAGE, CLASS, MISSING, LOST, PLACE, HEAD, EXT] = Array(15).keys();
const CLASSES = ["request", "again", "answer", "nak", "odd", "cm"];

const el = (name, attributes, text) => {
  const node = document.createElementNS(NS, name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  if (text !== undefined) node.textContent = text;
  return node;
};
const html = (name, text, cls) => {
  const node = document.createElement(name);
  if (text !== undefined) node.textContent = text;
  if (cls) node.className = cls;
  return node;
};
const hex = (n, width) => "0x" + n.toString(16).padStart(width, "0");
const span = (ns) => ns < 1e3 ? `${ns} ns` : ns < 1e6 ? `${(ns / 1e3).toPrecision(3)} us` : ns < 1e9 ? `${(ns / 1e6).toPrecision(3)} ms` : `${(ns / 1e9).toPrecision(3)} s`;
const at = (ns) => (ns / 1e9).toFixed(6);

const byConversation = new Map();
for (const packet of data.packets) {
  if (!byConversation.has(packet[CONV])) byConversation.set(packet[CONV], []);
  byConversation.get(packet[CONV]).push(packet);
}
const none = { id: -1, title: "packets without a conversation", ends: ["sender", "receiver"], about: [], findings: data.findings, more_findings: data.more_findings, cm: {}, messages: [] };
// Connections without data have an entry of their own.
const conversations = data.conversations.concat(data.connections);
if (byConversation.has(-1) || data.findings.length > 0 || conversations.length === 0) conversations.push(none);

const state = { conversation: null, rows: [], ys: [], height: 0, row: 18, zoom: 0, selected: null, hover: null, brackets: [], byNumber: new Map() };
// Below the names of the two ends.
const TOP = 40;
// Narrower than this there is no room beside the life lines.
const NARROW = 600;
// Browsers lay out no more pixels than this, and some: Firefox 17.9 million, Chromium 33.5 million.
const TALLEST = 16e6;

// ---- What happened, the worst first.

const degreeOf = (finding) => data.degrees.findIndex(([name]) => name === finding.severity);
const worst = (conversation) => Math.max(-1, ...conversation.findings.map(degreeOf));

function findingItem(finding, where) {
  const item = html("li", undefined, finding.severity);
  item.tabIndex = 0;
  const [, mark, meaning] = data.degrees[degreeOf(finding)];
  const sign = html("b", mark);
  sign.title = meaning;
  const packets = finding.packets.length === 1 ? `packet ${finding.packets[0]}` : `packets ${finding.packets.slice(0, 6).join(", ")}`;
  item.append(sign, html("small", where ? `${where}, ${packets}` : packets), html("div", finding.what));
  return item;
}

function onPress(item, go) {
  item.addEventListener("click", go);
  item.addEventListener("keydown", (event) => { if (event.key === "Enter") go(); });
}

// So many findings of other queue pairs are listed.
const OTHERS = 60;

function listOthers() {
  const found = [];
  for (const other of conversations) if (other !== state.conversation) for (const finding of other.findings) found.push([other, finding]);
  found.sort(([, a], [, b]) => degreeOf(b) - degreeOf(a));
  $("elsewhere").hidden = found.length === 0;
  $("others").replaceChildren(...found.slice(0, OTHERS).map(([other, finding]) => {
    const item = findingItem(finding, other.title.split(" (")[0]);
    onPress(item, () => { choose(other); show(finding.packets[finding.packets.length - 1]); });
    return item;
  }));
  if (found.length > OTHERS) $("others").append(html("p", `and ${found.length - OTHERS} more`, "soft"));
}

// ---- Which packets, and where.

function oddNumbers(conversation) {
  const numbers = new Set();
  for (const finding of conversation.findings) for (const number of finding.packets) numbers.add(number);
  return numbers;
}

function isOdd(packet) {
  return packet[CLASS] === 1 || packet[CLASS] === 3 || packet[CLASS] === 4 || packet[MISSING] > 0 || state.odd.has(packet[NUMBER]);
}

function words(packet) {
  if (packet.words === undefined) {
    const ext = Object.values(packet[EXT]).flat().join(" ");
    packet.words = [packet[NUMBER], data.opcodes[packet[OP]], hex(packet[PSN], 6), packet[PLACE], ext].join(" ").toLowerCase();
  }
  return packet.words;
}

function choose(conversation) {
  state.conversation = conversation;
  state.odd = oddNumbers(conversation);
  state.messages = new Map(conversation.messages.map((message) => [message[0] + ":" + message[1], message]));
  state.selected = null;
  $("conversation").value = String(conversations.indexOf(conversation));
  const about = $("about");
  about.replaceChildren(...conversation.about.map((line) => html("p", line)), ...data.about.map((line) => html("p", line, "soft")));
  const list = $("findings");
  list.replaceChildren(...conversation.findings.map((finding) => {
    const item = findingItem(finding);
    if (finding.cause) item.append(html("div", finding.cause, "soft"));
    if (finding.explain) item.append(html("small", `rnic explain ${finding.explain}`));
    onPress(item, () => show(finding.packets[finding.packets.length - 1]));
    return item;
  }));
  if (conversation.more_findings > 0) list.append(html("p", `${conversation.more_findings} more were not kept`, "soft"));
  if (conversation.findings.length === 0) list.append(html("p", "nothing out of the ordinary", "soft"));
  listOthers();
  const opcodes = [...new Set((byConversation.get(conversation.id) || []).map((packet) => packet[OP]))].sort((a, b) => a - b);
  const chosen = $("opcode").value;
  $("opcode").replaceChildren(new Option("all", ""), ...opcodes.map((index) => new Option(data.opcodes[index], String(index))));
  $("opcode").value = opcodes.includes(Number(chosen)) ? chosen : "";
  $("scroll").scrollTop = 0;
  fill();
  detail(null);
}

function filter() {
  keepPlace(fill);
}

// The packets that the filters let through.
function fill() {
  const all = byConversation.get(state.conversation.id) || [];
  const opcode = $("opcode").value, odd = $("odd").checked, text = $("text").value.trim().toLowerCase();
  state.rows = all.filter((packet) => (opcode === "" || packet[OP] === Number(opcode)) && (!odd || isOdd(packet)) && (text === "" || words(packet).includes(text)));
  state.byNumber = new Map();
  state.rows.forEach((packet, index) => { if (!state.byNumber.has(packet[NUMBER])) state.byNumber.set(packet[NUMBER], index); });
  $("count").textContent = `${state.rows.length} of ${all.length} packets` + (data.more_packets > 0 ? `; ${data.more_packets} more are not in this page` : "");
  bracket();
  layout();
}

// Lanes for messages that overlap in time.
function bracket() {
  const lanes = [[], []];
  state.brackets = [];
  for (const message of state.conversation.messages) {
    const [side, , , , first, last, answer] = message;
    const from = state.byNumber.get(first);
    if (from === undefined) continue;
    const ends = [last, answer].map((number) => state.byNumber.get(number)).filter((row) => row !== undefined);
    const to = Math.max(from, ...ends);
    let lane = lanes[side].findIndex((busy) => busy < from);
    if (lane < 0) lane = lanes[side].length;
    if (lane >= 6) continue;
    lanes[side][lane] = to;
    state.brackets.push({ message, from, to, lane });
  }
}

const isNarrow = () => $("scroll").clientWidth < NARROW;

function layout() {
  // With little room time and number stand below their arrow.
  const row = Math.max(2.5, Math.min(isNarrow() ? 60 : 44, (isNarrow() ? 32 : 18) * Math.pow(1.3, state.zoom)));
  // Pixels per microsecond; a pause takes no more than five rows.
  const scale = 0.02 * Math.pow(2, state.zoom);
  state.row = row;
  let y = TOP + row, before = null;
  state.ys = state.rows.map((packet) => {
    if (before !== null) y += Math.max(row, Math.min(row * 5, ((packet[TIME] - before) / 1e3) * scale));
    before = packet[TIME];
    return y;
  });
  state.height = y + row * 2;
  $("space").style.height = `${Math.min(state.height, TALLEST)}px`;
  draw();
}

// ---- Scrolling. `ys` count pixels of the whole; where these are more than can be laid out, the scroll bar moves in larger steps.

function stretch() {
  const seen = $("scroll").clientHeight;
  return state.height > TALLEST ? (state.height - seen) / (TALLEST - seen) : 1;
}

// The y at the upper edge of what can be seen.
function upperEdge() {
  return $("scroll").scrollTop * stretch();
}

function moveTo(y) {
  $("scroll").scrollTop = y / stretch();
}

function isInView(y) {
  const top = upperEdge();
  return y >= top + TOP + 20 && y <= top + $("scroll").clientHeight - 20;
}

// The first row of a packet, or behind it, that is there; -1 if there is none.
function rowFrom(packet) {
  return state.rows.findIndex((row) => row[NUMBER] >= packet[NUMBER]);
}

// Changes the rows or their places. The packet that is selected, if it can be seen, else the one in the middle, stays where it is.
function keepPlace(change) {
  const top = upperEdge(), middle = top + $("scroll").clientHeight / 2;
  const selected = state.selected ? state.rows.indexOf(state.selected) : -1;
  let index = selected >= 0 && isInView(state.ys[selected]) ? selected : state.ys.findIndex((y) => y >= middle);
  if (index < 0) index = state.rows.length - 1;
  const packet = index >= 0 ? state.rows[index] : state.selected;
  const offset = index >= 0 ? state.ys[index] - top : middle - top;
  change();
  if (!packet || state.rows.length === 0) return;
  const now = rowFrom(packet);
  moveTo(state.ys[now >= 0 ? now : state.rows.length - 1] - offset);
  draw();
}

// ---- Drawing what is visible.

function related() {
  const packet = state.hover || state.selected;
  if (!packet) return () => false;
  const message = state.messages.get(packet[SIDE] + ":" + packet[MESSAGE]);
  const answer = message ? message[6] : null;
  return (other) => other === packet || (packet[MESSAGE] > 0 && other[SIDE] === packet[SIDE] && other[MESSAGE] === packet[MESSAGE])
    || (other[FROM] === packet[FROM] && other[PSN] === packet[PSN] && other[OP] === packet[OP]) || other[NUMBER] === answer;
}

function draw() {
  const box = $("scroll"), svg = $("diagram");
  const narrow = isNarrow();
  const width = Math.max(300, box.clientWidth), height = Math.max(100, box.clientHeight);
  svg.setAttribute("height", height);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("class", state.hover ? "hovering" : "");
  const top = upperEdge(), margin = narrow ? 30 : width < 760 ? 116 : 150, left = margin, right = width - margin;
  const nodes = [];
  for (const x of [left, right]) nodes.push(el("line", { class: "life", x1: x, x2: x, y1: TOP - 6, y2: height }));
  // First row that can be seen.
  let low = 0, high = state.ys.length;
  while (low < high) { const middle = (low + high) >> 1; if (state.ys[middle] < top - 60) low = middle + 1; else high = middle; }
  const first = low;
  let last = first;
  while (last < state.ys.length && state.ys[last] < top + height + 60) last++;
  const near = related(), labels = state.row >= (narrow ? 24 : 11);
  for (const { message, from, to, lane } of state.brackets) {
    if (to < first || from > last || (narrow && lane >= 2)) continue;
    const y1 = Math.max(-20, state.ys[from] - top - 3), y2 = Math.min(height + 20, state.ys[to] - top + 3);
    const side = message[0], x = side === 0 ? left - 10 - lane * 9 : right + 10 + lane * 9, inwards = side === 0 ? 5 : -5;
    const chosen = state.hover || state.selected;
    const mine = chosen && chosen[SIDE] === side && chosen[MESSAGE] === message[1];
    const cls = ["bracket", message[7] === "refused" || message[7] === "lost" || message[7] === "open" ? "nak" : message[9] > 0 ? "again" : "", mine ? "related" : ""].join(" ");
    nodes.push(el("path", { class: cls, d: `M ${x + inwards} ${y1} H ${x} V ${y2} H ${x + inwards}` }));
    if (labels && !narrow && lane === 0 && y2 - y1 > state.row * 0.6) {
      const words = `#${message[1]} ${message[2]}`;
      nodes.push(el("text", { x: side === 0 ? 4 : width - 4, y: Math.max(y1 + 10, TOP + 8), "text-anchor": side === 0 ? "start" : "end", class: "soft" }, cut(words, (margin - 14) / 6.7)));
      if (y2 - y1 > 26) nodes.push(el("text", { x: side === 0 ? 4 : width - 4, y: Math.max(y1 + 23, TOP + 21), "text-anchor": side === 0 ? "start" : "end", class: "soft" }, `${message[3]} B`));
    }
  }
  for (let index = first; index < last; index++) {
    const packet = state.rows[index], y = state.ys[index] - top;
    if (index > 0) {
      const pause = packet[TIME] - state.rows[index - 1][TIME], room = state.ys[index] - state.ys[index - 1];
      if (pause >= 1e5 && room >= 26) nodes.push(el("text", { x: (left + right) / 2, y: y - 3 - room / 2, "text-anchor": "middle", class: "soft pause" }, `\u22ee ${span(pause)}`));
    }
    nodes.push(arrow(packet, index, y, left, right, labels, near(packet), narrow));
  }
  nodes.push(el("rect", { class: "headback", x: 0, y: 0, width, height: TOP - 6 }));
  for (const end of [0, 1]) {
    // The address, and the queue pair below it.
    const [, address, queuePair] = /^(.*?)( QP .*| multicast)?$/.exec(state.conversation.ends[end]);
    const at = end === 0 ? { x: 6, "text-anchor": "start" } : { x: width - 6, "text-anchor": "end" };
    for (const [line, words] of [[14, address], [28, (queuePair || "").trim()]]) {
      nodes.push(el("text", { class: "head", y: line, ...at }, cut(words, (width / 2 - 10) / 6.7)));
    }
  }
  svg.replaceChildren(...nodes);
}

// Text of no more than so many characters.
function cut(words, most) {
  return words.length > most ? words.slice(0, Math.max(1, Math.floor(most) - 1)) + "\u2026" : words;
}

function arrow(packet, index, y, left, right, labels, isRelated, narrow) {
  const [x1, x2] = packet[FROM] === 0 ? [left, right] : [right, left];
  const way = x2 > x1 ? 1 : -1;
  const cls = ["packet", CLASSES[packet[CLASS]], packet === state.selected ? "selected" : "", isRelated ? "related" : ""].join(" ");
  const group = el("g", { class: cls, "data-number": packet[NUMBER], "data-index": index });
  group.append(el("rect", { class: "back", x: left, y: y - Math.min(state.row, 16) * 0.85, width: right - left, height: Math.min(state.row, narrow ? 30 : 18) }));
  const end = packet[LOST] ? x1 + (x2 - x1) * 0.75 : x2;
  group.append(el("line", { class: "shaft", x1, x2: end - way * 3, y1: y, y2: y }));
  if (packet[LOST]) {
    group.append(el("path", { class: "cross", d: `M ${end - 5} ${y - 5} l 10 10 m 0 -10 l -10 10` }));
  } else {
    group.append(el("path", { class: "tip", d: `M ${x2} ${y} l ${-way * 8} -3.5 v 7 z` }));
  }
  // Where the mouse finds it: no further than its row.
  const reach = Math.min(14, state.row);
  group.append(el("line", { class: "hit", style: `stroke-width: ${reach}px`, x1, x2, y1: y - reach / 7, y2: y - reach / 7 }));
  if (labels) {
    const size = packet[LEN] > 0 ? `  ${packet[LEN]} B` : "";
    const isCm = CLASSES[packet[CLASS]] === "cm";
    const note = packet[CLASS] === 1 ? "  again" : "";
    const name = packet[EXT].nak || data.opcodes[packet[OP]];
    // What a message of the connection manager says is not in its PSN and length.
    const words = `${name}${isCm ? "" : `  ${hex(packet[PSN], 6)}${size}`}${note}`;
    const sides = narrow ? 8 : 66, room = (right - left - 2 * sides) / 6.7;
    const time = at(packet[TIME]);
    group.append(el("text", { x: (left + right) / 2, y: y - 3.5, "text-anchor": "middle" }, cut(words, room)));
    group.append(el("text", { x: left + (narrow ? 6 : 8), y: narrow ? y + 11 : y - 3.5, class: "soft" }, time));
    group.append(el("text", { x: right - (narrow ? 6 : 10), y: narrow ? y + 11 : y - 3.5, "text-anchor": "end", class: "soft" }, packet[NUMBER]));
  }
  if (packet[MISSING] > 0) group.append(el("text", { class: "missing", x: (left + right) / 2, y: y - state.row * 0.75 - 6, "text-anchor": "middle" }, `\u2014 ${packet[MISSING]} not seen \u2014`));
  return group;
}

// ---- One packet.

const fields = new Map(data.fields.map((field) => [field.key, field]));
const headers = new Map(data.headers.map((header) => [header.key, header]));
const messages = new Map(data.messages.map((message) => [message.key, message]));
// Fields whose explanation somebody opened stay open from packet to packet.
const opened = new Set();

function fieldRow(key, value) {
  const field = fields.get(key);
  const box = html("details", undefined, "field"), line = html("summary");
  line.title = `${field.meaning} (${field.size}; ${field.source})`;
  line.append(html("span", field.name), html("code", String(value)));
  const more = html("p", field.meaning);
  more.append(html("small", ` ${field.size}; ${field.source}.`, "soft"));
  box.append(line, more);
  box.open = opened.has(key);
  box.addEventListener("toggle", () => { if (box.open) opened.add(key); else opened.delete(key); });
  return box;
}

function fieldsOf(packet) {
  const [src, dst, srcPort, ipId, df, tos, ttl, vlan, solicited, migReq, pad, pkey, fecn, becn, destQp, ackReq, icrc, cut] = packet[HEAD];
  const ext = packet[EXT], rows = [];
  rows.push(["frame.number", packet[NUMBER]], ["frame.time", at(packet[TIME]) + " s"]);
  if (vlan !== null) rows.push(["eth.vlan", vlan]);
  rows.push(["ip.src", data.addresses[src]], ["ip.dst", data.addresses[dst]]);
  if (!data.addresses[src].includes(":")) rows.push(["ip.id", hex(ipId, 4) + (df ? ", DF" : ", no DF")]);
  rows.push(["ip.tos", `${hex(tos, 2)} (DSCP ${tos >> 2}, ECN ${tos & 3})`], ["ip.hops", ttl], ["udp.src", srcPort], ["udp.dst", 4791]);
  rows.push(["bth.opcode", `${hex(data.codes[packet[OP]], 2)} ${operation(packet)}`], ["bth.solicited", solicited], ["bth.migreq", migReq], ["bth.pad", pad],
    ["bth.pkey", hex(pkey, 4)], ["bth.ecn", `${fecn}, ${becn}`], ["bth.dest_qp", hex(destQp, 6)], ["bth.ack_req", ackReq], ["bth.psn", hex(packet[PSN], 6)]);
  if (ext.deth) rows.push(["deth.qkey", ext.deth[0]], ["deth.src_qp", ext.deth[1]]);
  if (ext.srqn) rows.push(["xrceth.srqn", ext.srqn]);
  if (ext.feth) rows.push(["feth.placement", ext.feth[0]], ["feth.selectivity", ext.feth[1]]);
  if (ext.reth) rows.push(["reth.va", ext.reth[0]], ["reth.rkey", ext.reth[1]], ["reth.len", `${ext.reth[2]} bytes`]);
  if (ext.atomic) rows.push(["atomiceth.va", ext.atomic[0]], ["atomiceth.rkey", ext.atomic[1]], ["atomiceth.swap", ext.atomic[2]], ["atomiceth.compare", ext.atomic[3]]);
  if (ext.aeth) rows.push(["aeth.syndrome", ext.aeth[0]], ["aeth.msn", ext.aeth[1]]);
  if (ext.original) rows.push(["atomicacketh.original", ext.original]);
  if (ext.imm) rows.push(["immdt.data", ext.imm]);
  if (ext.ieth) rows.push(["ieth.rkey", ext.ieth]);
  if (ext.cm) rows.push(["cm.message", `CM ${ext.cm}`]);
  rows.push(["end.payload", `${packet[LEN]} bytes${cut ? " (not all captured)" : ""}`], ["end.icrc", icrc]);
  return rows;
}

// The operation of the opcode, also where the packet is called by what it carries.
function operation(packet) {
  const name = data.opcodes[packet[OP]];
  return packet[HEAD][14] === 1 && packet[EXT].deth ? "SEND Only" : name;
}

function detail(packet) {
  const box = $("detail");
  if (!packet) { box.replaceChildren(html("p", "Point at a packet, or click it to keep it here. Each header field is explained: point at it, or open it.", "soft")); return; }
  const ext = packet[EXT];
  const parts = [html("h2", `Packet ${packet[NUMBER]}: ${ext.nak || data.opcodes[packet[OP]]}`)];
  if (ext.cm) {
    const told = messages.get(ext.cm);
    parts.push(html("p", `${told.name[0].toUpperCase()}${told.name.slice(1)} (${told.source}). ${told.meaning}`));
    for (const line of state.conversation.cm[ext.cm] || []) parts.push(html("p", line, "soft"));
  } else if (packet[PLACE]) {
    parts.push(html("p", packet[PLACE]));
  }
  for (const finding of state.conversation.findings) {
    if (finding.packets.includes(packet[NUMBER])) parts.push(html("p", finding.what, "here"), html("p", finding.cause || "", "soft"));
  }
  const message = state.messages.get(packet[SIDE] + ":" + packet[MESSAGE]);
  if (message) {
    const [side, id, operation, bytes, first, , , , outcome, repeated, notes] = message;
    parts.push(html("h2", `Message ${id} of ${"AB"[side]}`), html("p", `${operation}, ${bytes} bytes, from packet ${first}`), html("p", outcome));
    if (repeated > 0) parts.push(html("p", `${repeated} of its packets were sent again`));
    if (notes) parts.push(html("p", notes, "soft"));
  }
  let before = "";
  for (const [key, value] of fieldsOf(packet)) {
    const header = headers.get(key.slice(0, key.indexOf(".")));
    if (header.key !== before) {
      const title = html("h3", header.name);
      title.title = header.meaning;
      parts.push(title);
    }
    before = header.key;
    parts.push(fieldRow(key, value));
  }
  box.replaceChildren(...parts);
}

function select(index) {
  if (state.rows.length === 0) return;
  index = Math.max(0, Math.min(state.rows.length - 1, index));
  state.selected = state.rows[index];
  const y = state.ys[index];
  if (!isInView(y)) moveTo(y - $("scroll").clientHeight / 2);
  detail(state.selected);
  draw();
}

function show(number) {
  if (!state.byNumber.has(number)) {
    $("opcode").value = ""; $("odd").checked = false; $("text").value = "";
    filter();
  }
  if (state.byNumber.has(number)) select(state.byNumber.get(number));
}

function step(by, wanted) {
  let index = state.selected ? state.rows.indexOf(state.selected) : -1;
  if (index < 0) {
    // From where it would be, had the filters not taken it away.
    const next = state.selected ? rowFrom(state.selected) : by > 0 ? 0 : -1;
    index = (next < 0 ? state.rows.length : next) - (by > 0 ? 1 : 0);
  }
  do index += by; while (index >= 0 && index < state.rows.length && wanted && !wanted(state.rows[index]));
  if (index >= 0 && index < state.rows.length) select(index);
}

function zoom(by) {
  state.zoom = Math.max(-8, Math.min(14, by === 0 ? 0 : state.zoom + by));
  keepPlace(layout);
}

function turn(by) {
  const index = conversations.indexOf(state.conversation) + by;
  if (index >= 0 && index < conversations.length) choose(conversations[index]);
}

// ---- Wiring.

const keys = [
  ["j k, \u2193 \u2191", "next and previous packet", { j: () => step(1), ArrowDown: () => step(1), k: () => step(-1), ArrowUp: () => step(-1) }],
  ["n p", "next and previous anomaly", { n: () => step(1, isOdd), p: () => step(-1, isOdd) }],
  ["Home End", "first and last packet", { Home: () => select(0), End: () => select(state.rows.length - 1) }],
  ["[ ]", "previous and next queue pair", { "[": () => turn(-1), "]": () => turn(1) }],
  ["+ - 0", "zoom in time", { "+": () => zoom(1), "=": () => zoom(1), "-": () => zoom(-1), 0: () => zoom(0) }],
  ["a", "anomalies only", { a: () => { $("odd").checked = !$("odd").checked; filter(); } }],
  ["/", "search", { "/": () => $("text").focus() }],
  ["Esc", "let go of the packet", { Escape: () => { state.selected = null; detail(null); draw(); } }],
  ["?", "this list", { "?": () => $("keys").showModal() }],
];
for (const [names, words] of keys) $("keylist").append(html("dt", names), html("dd", words));
for (const [, mark, meaning] of data.degrees) $("marks").append(html("dt", mark), html("dd", meaning));

// The legend: each kind of arrow, mark and bracket, drawn as in the diagram.
function swatch(kind) {
  const svg = el("svg", { viewBox: "0 0 36 16", "aria-hidden": "true" });
  const shaft = (cls, end) => {
    const group = el("g", { class: cls });
    group.append(el("line", { class: "shaft", x1: 1, x2: end, y1: 8, y2: 8 }));
    return group;
  };
  if (CLASSES.includes(kind)) {
    const group = shaft(kind, 31);
    group.append(el("path", { class: "tip", d: "M 35 8 l -8 -3.5 v 7 z" }));
    svg.append(group);
  } else if (kind === "lost") {
    const group = shaft("request", 26);
    group.append(el("path", { class: "cross", d: "M 22 4 l 8 8 m 0 -8 l -8 8" }));
    svg.append(group);
  } else if (kind === "missing") {
    svg.append(el("text", { class: "missing", x: 18, y: 12, "text-anchor": "middle" }, "\u2014 2 \u2014"));
  } else if (kind === "pause") {
    svg.append(el("text", { class: "soft", x: 18, y: 12, "text-anchor": "middle" }, "\u22ee ms"));
  } else {
    svg.append(el("path", { class: `bracket ${kind.slice("message-".length)}`, d: "M 22 2 H 15 V 14 H 22" }));
  }
  return svg;
}
for (const [kind, name, meaning] of data.drawn) {
  const item = html("li");
  item.title = meaning;
  item.dataset.kind = kind;
  item.append(swatch(kind), html("span", name));
  $("drawn").append(item);
  const term = html("dt");
  term.append(swatch(kind));
  $("meanings").append(term, html("dd", `${name}: ${meaning}`));
}
for (const [name, mark, meaning] of data.degrees) {
  const item = html("li");
  item.title = `In front of a finding: ${meaning}`;
  item.dataset.kind = name;
  item.append(html("b", mark), html("span", meaning));
  $("drawn").append(item);
}
// There is room for it, or it can be opened.
$("legend").open = matchMedia("(min-width: 900px) and (min-height: 600px)").matches;
$("legend").addEventListener("toggle", draw);
document.addEventListener("keydown", (event) => {
  const takesKeys = event.target.matches && event.target.matches("select, input:not([type=checkbox])");
  if (takesKeys || event.ctrlKey || event.metaKey || event.altKey || $("keys").open) {
    if (event.key === "Escape" && event.target.blur) event.target.blur();
    return;
  }
  for (const [, , actions] of keys) {
    if (Object.hasOwn(actions, event.key)) { event.preventDefault(); actions[event.key](); return; }
  }
});
const packetOf = (event) => {
  const group = event.target.closest && event.target.closest("g.packet");
  return group ? state.rows[Number(group.dataset.index)] || null : null;
};
$("diagram").addEventListener("mousemove", (event) => {
  const packet = packetOf(event);
  if (packet === state.hover) return;
  state.hover = packet;
  detail(packet || state.selected);
  draw();
});
$("diagram").addEventListener("mouseleave", () => { state.hover = null; detail(state.selected); draw(); });
$("diagram").addEventListener("click", (event) => { state.selected = packetOf(event); detail(state.selected); draw(); });
$("scroll").addEventListener("wheel", (event) => { if (event.ctrlKey) { event.preventDefault(); zoom(event.deltaY < 0 ? 1 : -1); } }, { passive: false });
let pending = false;
$("scroll").addEventListener("scroll", () => { if (!pending) { pending = true; requestAnimationFrame(() => { pending = false; draw(); }); } });
window.addEventListener("resize", () => keepPlace(layout));
$("conversation").addEventListener("change", () => choose(conversations[Number($("conversation").value)]));
for (const id of ["opcode", "odd"]) $(id).addEventListener("change", filter);
$("text").addEventListener("input", filter);
$("in").addEventListener("click", () => zoom(1));
$("out").addEventListener("click", () => zoom(-1));
$("help").addEventListener("click", () => $("keys").showModal());
$("theme").addEventListener("click", () => {
  const root = document.documentElement, dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
$("title").textContent = data.title;
document.title = data.title;
$("conversation").replaceChildren(...conversations.map((conversation, index) => new Option(conversation.title, String(index))));
// Where the worst happened.
choose(conversations.reduce((best, conversation) => worst(conversation) > worst(best) ? conversation : best));
