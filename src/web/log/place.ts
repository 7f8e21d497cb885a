import { useEffect, useRef, useState } from 'preact/hooks'

/** A row of the page of a log, as the fragment of its address names it. */
export type Place =
  | { readonly kind: 'head'; readonly size: number }
  | { readonly kind: 'leaf'; readonly index: number }

/** `#head-12`, `#leaf-3`; null for any other fragment. */
export function readPlace(fragment: string): Place | null {
  const [, kind, digits] = /^#(head|leaf)-(\d{1,15})$/.exec(fragment) ?? []
  if (kind === undefined) return null
  return kind === 'head'
    ? { kind: 'head', size: Number(digits) }
    : { kind: 'leaf', index: Number(digits) }
}

/** The row that the address names now. */
export function usePlace(): Place | null {
  const [place, setPlace] = useState(() => readPlace(location.hash))
  useEffect(() => {
    const read = () => setPlace(readPlace(location.hash))
    addEventListener('hashchange', read)
    return () => removeEventListener('hashchange', read)
  }, [])
  return place
}

/**
 * The page of a list: `named`, which has the place of the address, until the reader turns to
 * another page, and again when the address names another place. Null is the newest page.
 */
export function usePageOf(
  place: Place | null,
  named: number | null,
): readonly [number | null, (page: number | null) => void] {
  const [turned, setTurned] = useState<{ readonly at: Place | null; readonly to: number | null }>()
  return [
    turned !== undefined && turned.at === place ? turned.to : named,
    (to) => setTurned({ at: place, to }),
  ]
}

/** Of the row that the address names: brings its reader there once, when it is there. */
export function useArrival(place: Place | null, isThere: boolean) {
  const row = useRef<HTMLTableRowElement>(null)
  const arrived = useRef<Place | null>(null)
  useEffect(() => {
    if (place === null || !isThere || arrived.current === place) return
    arrived.current = place
    row.current?.scrollIntoView({ block: 'center' })
    row.current?.focus({ preventScroll: true })
  }, [place, isThere])
  return row
}
