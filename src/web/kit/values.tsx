import { useEffect, useState } from 'preact/hooks'
import { escapeLine } from './outside-text.tsx'
import { shortenHex } from './shorten-hex.ts'

/** Shows a shortened value. The title and the copy button have the whole value. */
export function Hex({ value, digits = 12 }: { readonly value: string; readonly digits?: number }) {
  const text = escapeLine(value.slice(0, 600))
  const prefix = text.startsWith('0x') ? 2 : 0
  const isShort = text.length <= digits + prefix + 4
  return (
    <span>
      <span class="hex" title={text}>
        {isShort ? text : shortenHex(text, digits + prefix)}
      </span>{' '}
      {!isShort && <CopyButton text={value} what={`${text.slice(0, digits + prefix)}…`} />}
    </span>
  )
}

/** `what` names the copied text for screen readers. */
export function CopyButton({ text, what }: { readonly text: string; readonly what: string }) {
  const [outcome, setOutcome] = useState<'none' | 'copied' | 'failed'>('none')
  useEffect(() => {
    if (outcome === 'none') return
    const timer = setTimeout(() => setOutcome('none'), 2_000)
    return () => clearTimeout(timer)
  }, [outcome])
  const copy = () =>
    navigator.clipboard.writeText(text).then(
      () => setOutcome('copied'),
      () => setOutcome('failed'),
    )
  return (
    <button type="button" class="small" onClick={() => void copy()} aria-label={`Copy ${what}`}>
      <span aria-live="polite">{COPY_WORDS[outcome]}</span>
    </button>
  )
}

const COPY_WORDS = { none: 'Copy', copied: 'Copied', failed: 'Not allowed' } as const

/** In the reader's time zone. The title has the time in UTC. */
export function Time({ ms }: { readonly ms: number }) {
  const time = new Date(ms)
  if (Number.isNaN(time.getTime())) return <span>{ms} ms</span>
  const iso = time.toISOString()
  return (
    <time dateTime={iso} title={iso}>
      {time.toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'medium' })}
    </time>
  )
}

/** Separates thousands. Shows up to nine decimals, because money has nine. */
export function numberText(value: number): string {
  return value.toLocaleString('en', { maximumFractionDigits: 9 })
}

export function Count({ value }: { readonly value: number }) {
  return <>{numberText(value)}</>
}
