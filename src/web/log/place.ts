import { useEffect, useRef, useState } from 'preact/hooks'

/** A row on the page of a log, as the fragment of the address names it. */
export type RowPlace =
  | { readonly kind: 'head'; readonly size: number }
  | { readonly kind: 'leaf'; readonly index: number }

/** `#head-12` or `#leaf-3`. Null for any other fragment. */
function readPlace(fragment: string): RowPlace | null {
  const [, kind, digits] = /^#(head|leaf)-(\d{1,15})$/.exec(fragment) ?? []
  if (kind === undefined) return null
  return kind === 'head'
    ? { kind: 'head', size: Number(digits) }
    : { kind: 'leaf', index: Number(digits) }
}

export function usePlace(): RowPlace | null {
  const [place, setPlace] = useState(() => readPlace(location.hash))
  useEffect(() => {
    const read = () => setPlace(readPlace(location.hash))
    addEventListener('hashchange', read)
    return () => removeEventListener('hashchange', read)
  }, [])
  return place
}

/**
 * Returns the shown page of a list (null: the newest page), and a function to choose a page. The
 * shown page is `named` (the page with the row that the address names) until the reader chooses a
 * page. When the address names another row, the shown page is `named` again.
 */
export function usePageOf(
  place: RowPlace | null,
  named: number | null,
): readonly [number | null, (page: number | null) => void] {
  const [turned, setTurned] = useState<{
    readonly at: RowPlace | null
    readonly to: number | null
  }>()
  return [
    turned !== undefined && turned.at === place ? turned.to : named,
    (to) => setTurned({ at: place, to }),
  ]
}

/** Scrolls once to the row that the address names, as soon as the row exists, and focuses it. */
export function useArrival(place: RowPlace | null, isThere: boolean) {
  const row = useRef<HTMLTableRowElement>(null)
  const arrived = useRef<RowPlace | null>(null)
  useEffect(() => {
    if (place === null || !isThere || arrived.current === place) return
    arrived.current = place
    row.current?.scrollIntoView({ block: 'center' })
    row.current?.focus({ preventScroll: true })
  }, [place, isThere])
  return row
}
