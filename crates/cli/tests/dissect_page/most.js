// As many packets as a page holds, evenly spaced: ALL. However tall that is, each can be reached.
for (const [size, keys] of [["as it comes", ""], ["largest", "+".repeat(14)], ["smallest", "-".repeat(22)]]) {
  for (const name of keys) key(name);
  scrollTo(0);
  await until(`${size}: the start`, () => isSeen(1) && drawn().length < 500);
  scrollTo(1 / 2);
  await until(`${size}: the middle`, () => inTheMiddle(ALL / 2, 10) && drawn().length < 500);
  scrollTo(1);
  await until(`${size}: the end`, () => isSeen(ALL) && drawn().length < 500);
  key("Home");
  await until(`${size}: Home`, () => isSeen(1));
  key("End");
  await until(`${size}: End`, () => isSeen(ALL));
  key("Escape");
}
