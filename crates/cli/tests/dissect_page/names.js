// A connection whose private data would be markup if it could: the messages of the connection manager by their names.
check("nothing hostile became an element", document.querySelectorAll("img, iframe, object, embed").length === 0 && window.pwned === undefined);
check("the hostile name is shown", document.title.includes("<img src=x") && $("title").textContent.includes("<img src=x"));
const label = (number) => document.querySelector(`g.packet[data-number="${number}"] text`).textContent;
check("the first packet is called by its message", label(1) === "CM REQ");
check("the second, too", label(2) === "CM REP");
check("no number of a MAD stands for one", !drawn().some((group) => /^(MAD|SEND Only) /.test(group.querySelector("text").textContent) && group.classList.contains("cm")));
check("they can be chosen", [...$("opcode").options].some((option) => option.textContent === "CM REQ"));
select(0);
const words = $("detail").textContent;
check("the packet says what it is", words.includes("Packet 1: CM REQ") && words.includes("Request for a connection") && words.includes("IBTA 12.6.5"));
check("and what it asks for", words.includes("path MTU"));
check("the private data is text", words.includes("<img src=x"));
check("its fields are those of a datagram", words.includes("0x64 SEND Only") && words.includes("Q_Key") && words.includes("0x80010000"));
check("still nothing hostile is an element", document.querySelectorAll("img, iframe, object, embed").length === 0 && window.pwned === undefined);
