/**
 * Gives what `source` gives, asking for the next before the one in hand is used up, so that waiting
 * and work overlap.
 */
export async function* readAhead<Item>(source: AsyncIterable<Item>): AsyncGenerator<Item> {
  const items = source[Symbol.asyncIterator]()
  let next = ask(items)
  try {
    for (;;) {
      const item = await next
      if (item.done) return
      next = ask(items)
      yield item.value
    }
  } finally {
    // Whoever stops early has no use for the answer that is on its way, nor for how it fails.
    next.then(
      () => items.return?.(),
      () => undefined,
    )
  }
}

function ask<Item>(items: AsyncIterator<Item>): Promise<IteratorResult<Item>> {
  const next = items.next()
  next.catch(() => undefined)
  return next
}
