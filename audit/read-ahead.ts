/** Requests the next item while the caller still uses the current item. */
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
    // A caller that stops early needs neither the next item nor its error.
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
