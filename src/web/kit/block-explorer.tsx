import { useState } from 'preact/hooks'
import { escapeLine } from './outside-text.tsx'
import { CopyButton, Hex } from './values.tsx'

/** URL templates with `{tx}` and `{block}`. Both are '' without an explorer. */
export type BlockExplorer = { readonly tx: string; readonly block: string }

const NAMES = { tx: 'affidavit:explorer:tx', block: 'affidavit:explorer:block' } as const
const NONE: BlockExplorer = { tx: '', block: '' }

/** The block explorer that the reader set in this browser, and a function to set another. */
export function useBlockExplorer(): readonly [BlockExplorer, (given: BlockExplorer) => void] {
  const [explorer, setExplorer] = useState(read)
  const keep = (given: BlockExplorer) => {
    setExplorer(given)
    try {
      localStorage.setItem(NAMES.tx, given.tx)
      localStorage.setItem(NAMES.block, given.block)
    } catch {
      // The browser stores nothing, so the setting is lost when the page closes.
    }
  }
  return [explorer, keep]
}

function read(): BlockExplorer {
  try {
    return {
      tx: localStorage.getItem(NAMES.tx) ?? '',
      block: localStorage.getItem(NAMES.block) ?? '',
    }
  } catch {
    return NONE
  }
}

/**
 * Null when the template is not an http(s) URL with the placeholder, or when the value would change
 * the target of the URL.
 */
function fillTemplate(
  template: string,
  { place, value }: { readonly place: 'tx' | 'block'; readonly value: string },
): string | null {
  const mark = `{${place}}`
  if (!template.includes(mark) || !/^(0x)?[0-9a-f]+$/.test(value)) return null
  const sample = parseUrl(template.replaceAll(mark, '0'))
  const url = parseUrl(template.replaceAll(mark, value))
  const isSafe =
    url !== null &&
    (url.protocol === 'https:' || url.protocol === 'http:') &&
    url.username === '' &&
    url.password === '' &&
    url.origin === sample?.origin
  return isSafe ? url.href : null
}

function parseUrl(text: string): URL | null {
  return URL.canParse(text) ? new URL(text) : null
}

/** A hash to copy, and a link to the reader's block explorer. */
export function TransactionLink({
  hash,
  explorer,
}: {
  readonly hash: string
  readonly explorer: BlockExplorer
}) {
  const href = fillTemplate(explorer.tx, { place: 'tx', value: hash })
  return (
    <span class="value">
      <Hex value={hash} digits={8} />
      {href !== null && <LookUp href={href} what={`transaction ${hash.slice(0, 10)}`} />}
    </span>
  )
}

/** A block number to copy, and a link to the reader's block explorer. */
export function BlockLink({
  number,
  explorer,
}: {
  readonly number: number
  readonly explorer: BlockExplorer
}) {
  const href = fillTemplate(explorer.block, { place: 'block', value: String(number) })
  return (
    <span class="value">
      <span class="hex">{number}</span>{' '}
      <CopyButton text={String(number)} what={`block ${number}`} />
      {href !== null && <LookUp href={href} what={`block ${number}`} />}
    </span>
  )
}

function LookUp({ href, what }: { readonly href: string; readonly what: string }) {
  return (
    <>
      {' '}
      <a href={href} target="_blank" rel="noreferrer noopener" aria-label={`Look up ${what}`}>
        look up
      </a>
    </>
  )
}

export function BlockExplorerForm({
  explorer,
  onChange,
}: {
  readonly explorer: BlockExplorer
  readonly onChange: (explorer: BlockExplorer) => void
}) {
  return (
    <details class="card">
      <summary>Look anchors up in a block explorer of your choice</summary>
      <p>
        Transactions and blocks are shown here as the gateway reports them. Look them up at a site
        that you trust. This browser keeps the addresses, and loads nothing from there until you
        follow a link.
      </p>
      <TemplateField
        explorer={explorer}
        onChange={onChange}
        place="tx"
        name="Address of a transaction"
        sample={'0'.repeat(64)}
      />
      <TemplateField
        explorer={explorer}
        onChange={onChange}
        place="block"
        name="Address of a block"
        sample="1"
      />
    </details>
  )
}

function TemplateField({
  explorer,
  onChange,
  place,
  name,
  sample,
}: {
  readonly explorer: BlockExplorer
  readonly onChange: (explorer: BlockExplorer) => void
  readonly place: 'tx' | 'block'
  readonly name: string
  readonly sample: string
}) {
  const text = explorer[place]
  const isUnfit = text !== '' && fillTemplate(text, { place, value: sample }) === null
  return (
    <div class="field">
      <label for={`explorer-${place}`}>
        {name} <span class="hint">with {`{${place}}`} where it goes</span>
      </label>
      <input
        id={`explorer-${place}`}
        class="wide"
        inputMode="url"
        spellcheck={false}
        autocomplete="off"
        placeholder={`https://explorer.example/${place}/{${place}}`}
        value={text}
        aria-invalid={isUnfit}
        aria-describedby={`explorer-${place}-fault`}
        onInput={({ currentTarget }) =>
          onChange({ ...explorer, [place]: currentTarget.value.trim().slice(0, 500) })
        }
      />
      <p id={`explorer-${place}-fault`} class="fault-line" aria-live="polite">
        {isUnfit
          ? `${escapeLine(text.slice(0, 80))} is not used: it must be an http or https address that contains {${place}}.`
          : ''}
      </p>
    </div>
  )
}
