import { useEffect, useState } from 'preact/hooks'

/** Width below which rows become cards and panels become sheets, as in console.css. */
const NARROW = '(max-width: 47.99rem)'

/** True if the screen is as narrow as a phone's. Renders the component again when this changes. */
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
