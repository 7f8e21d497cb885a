import './print.css'
import { useEffect } from 'preact/hooks'

/** A hint for the printed report. Printing unfolds all links of the chain. */
export function PrintHint() {
  useEffect(() => {
    let opened: readonly HTMLDetailsElement[] = []
    const open = () => {
      const all = document.querySelectorAll<HTMLDetailsElement>('main details:not(.panel)')
      opened = [...all].filter((details) => !details.open)
      for (const details of opened) details.open = true
    }
    const close = () => {
      for (const details of opened) details.open = false
      opened = []
    }
    addEventListener('beforeprint', open)
    addEventListener('afterprint', close)
    return () => {
      removeEventListener('beforeprint', open)
      removeEventListener('afterprint', close)
    }
  }, [])
  return (
    <p class="print-only">
      This is a print of a check. Paper proves nothing: anyone can print this. Check the file
      itself: open it, or run <code>affidavit verify FILE --policy policy.json</code>.
    </p>
  )
}
