(async () => {
  // What a reader would see and click in the page of `rnic demo --html`.
  const said = [];
  const check = (name, holds) => said.push(`${holds ? "ok" : "WRONG"} ${name}`);
  try {
    const sections = [...document.querySelectorAll("#operations section")];
    check("six operations", sections.length === 6);
    check("each has arrows both ways", sections.every((section) => section.querySelector(".request") && section.querySelector(".answer")));
    check("each names its two sides", sections.every((section) => section.querySelectorAll("text.head").length === 2));
    check("the marks at an arrow are explained", document.getElementById("arrows").textContent.includes("PSN"));
    const ids = [...document.querySelectorAll("[id]")].map((node) => node.id);
    check("each id is one node's", new Set(ids).size === ids.length);
    const heading = document.querySelector("#lesson h1");
    check("the heading is whole", heading.scrollHeight <= heading.clientHeight + 1);
    check("each has a word", sections.every((section) => section.querySelector("a[href^='#word-']")));
    const links = [...document.querySelectorAll("#lesson a")];
    check("each link leads to a word of the page", links.length > 10 && links.every((link) => document.getElementById(link.getAttribute("href").slice(1))));
    const names = [...document.querySelectorAll("#words dt")].map((term) => term.firstChild.textContent);
    check("the words are there", ["QP", "RC", "WRITE", "READ", "atomic", "immediate", "rkey"].every((name) => names.includes(name)));
    check("nothing sticks out", document.documentElement.scrollWidth <= window.innerWidth);
    const bottom = (node) => node.getBoundingClientRect().bottom;
    check("the diagram of all packets ends the page", bottom(document.querySelector("main")) > bottom(document.getElementById("lesson")));
    const group = sections[1].querySelector("g.packet");
    const number = Number(group.dataset.number);
    group.querySelector(".shaft").dispatchEvent(new MouseEvent("click", { bubbles: true }));
    check("a click leads to the packet in it", state.selected && state.selected[0] === number);
    check("whose fields are explained", document.getElementById("detail").textContent.includes(`Packet ${number}`));
  } catch (error) {
    said.push(`WRONG ${error.stack}`);
  }
  return said.join("\n");
})()
