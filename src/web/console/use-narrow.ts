import { useEffect, useState } from 'preact/hooks'

/** Below this width rows become cards and panels become sheets, as in console.css. */
const NARROW = '(max-width: 47.99rem)'

/** Renders the component again when the width changes. */
export function useNarrow(): boolean {
  const [isNarrow, setIsNarrow] = useState(() => matchMedia(NARROW).matches)
  useEffect(() => {
    const query = matchMedia(NARROW)
    const read = () => setIsNarrow(query.matches)
    read()
    query.addEventListener('change', read)
    return () => query.removeEventListener('change', read)
  }, [])
  return isNarrow
}
