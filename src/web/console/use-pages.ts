import { type Inputs, useEffect, useRef, useState } from 'preact/hooks'

/** `cursor` leads to the next page. Null at the end. */
export type Page<Item> = { readonly items: readonly Item[]; readonly cursor: string | null }

/**
 * Reads one page after another, and starts again when `inputs` change. A read that is no longer
 * needed is aborted.
 */
export function usePages<Item>(
  read: (cursor: string | null, signal: AbortSignal) => Promise<Page<Item>>,
  inputs: Inputs,
) {
  const [items, setItems] = useState<readonly Item[] | null>(null)
  const [cursor, setCursor] = useState<string | null>(null)
  const [fault, setFault] = useState<unknown>(null)
  const [isLoading, setIsLoading] = useState(false)
  const [round, setRound] = useState(0)
  const running = useRef<AbortController | null>(null)

  const load = async (after: string | null) => {
    running.current?.abort()
    const abort = new AbortController()
    running.current = abort
    setIsLoading(true)
    setFault(null)
    try {
      const page = await read(after, abort.signal)
      if (abort.signal.aborted) return
      setItems((before) => [...(after === null ? [] : (before ?? [])), ...page.items])
      setCursor(page.cursor)
    } catch (refused) {
      if (abort.signal.aborted) return
      // The shown items belong to the old inputs.
      if (after === null) setItems(null)
      setFault(refused)
    } finally {
      if (!abort.signal.aborted) setIsLoading(false)
    }
  }
  useEffect(() => {
    setCursor(null)
    void load(null)
    return () => running.current?.abort()
  }, [...inputs, round])

  return {
    items,
    fault,
    isLoading,
    hasMore: cursor !== null,
    loadMore: () => void load(cursor),
    reload: () => setRound((before) => before + 1),
    change: (changed: (item: Item) => Item) => setItems((before) => before?.map(changed) ?? null),
  }
}

/** `&q=…&since=…` from the filled fields of a form, with times in Unix seconds. */
export function queryOf(fields: FormData): string {
  const query = new URLSearchParams()
  for (const [name, value] of fields) {
    if (typeof value !== 'string' || value.trim() === '') continue
    const isTime = name === 'since' || name === 'until'
    query.set(name, isTime ? String(Math.floor(Date.parse(value) / 1000)) : value.trim())
  }
  return query.size === 0 ? '' : `&${query}`
}
