import type { ComponentChildren } from 'preact'
import { useRef, useState } from 'preact/hooks'
import { decodeHex, encodeHex } from '#attestation/bytes.ts'
import { OwnGatewayFault } from '../kit/gateway.ts'
import { Busy, FaultNotice, State } from '../kit/notices.tsx'
import { OutsideText } from '../kit/outside-text.tsx'
import { Count, Hex } from '../kit/values.tsx'
import {
  type DescribedLog,
  domainOf,
  type Head,
  type HeadPage,
  readConsistency,
  readHeadAt,
  readInclusion,
} from './answers.ts'
import { checkGrowth, checkLeaf } from './check-log.ts'

type Verdict =
  | { readonly kind: 'none' }
  | { readonly kind: 'busy' }
  | { readonly kind: 'holds'; readonly said: ComponentChildren }
  | { readonly kind: 'fails'; readonly reason: string }
  /** The input names something that does not exist. */
  | { readonly kind: 'unfit'; readonly reason: string }
  | { readonly kind: 'fault'; readonly fault: unknown }

/** The message says what the reader can enter. */
class UnfitInput extends Error {}

/** Holds the verdict for the current input, until the form changes. */
function useVerdict(check: (signal: AbortSignal) => Promise<ComponentChildren>) {
  const [verdict, setVerdict] = useState<Verdict>({ kind: 'none' })
  const round = useRef(0)
  const run = async (event: Event) => {
    event.preventDefault()
    const mine = ++round.current
    const show = (found: Verdict) => mine === round.current && setVerdict(found)
    show({ kind: 'busy' })
    try {
      show({ kind: 'holds', said: await check(AbortSignal.timeout(CHECK_TIMEOUT_MS)) })
    } catch (fault) {
      show(verdictOf(fault))
    }
  }
  const drop = () => {
    round.current += 1
    setVerdict({ kind: 'none' })
  }
  return { verdict, run, drop }
}

const CHECK_TIMEOUT_MS = 30_000

function verdictOf(fault: unknown): Verdict {
  if (fault instanceof UnfitInput) return { kind: 'unfit', reason: fault.message }
  if (fault instanceof OwnGatewayFault) return { kind: 'fault', fault }
  if (fault instanceof DOMException) {
    const reason = 'The gateway does not answer in time. Try again.'
    return { kind: 'unfit', reason }
  }
  return { kind: 'fails', reason: fault instanceof Error ? fault.message : String(fault) }
}

function VerdictPlace({ verdict }: { readonly verdict: Verdict }) {
  return (
    <div class="verdict" aria-live="polite">
      {verdict.kind === 'busy' && <Busy what="Fetching heads and proof" />}
      {verdict.kind === 'holds' && (
        <div class="notice good">
          <p>
            <State tone="good">holds</State> {verdict.said}
          </p>
        </div>
      )}
      {verdict.kind === 'fails' && (
        <div class="notice bad">
          <p>
            <State tone="bad">does not hold</State>{' '}
            <OutsideText text={verdict.reason} shownMax={300} />
          </p>
          <p>
            The gateway's answer is not a valid proof. Do not rely on this log, and ask its
            operator.
          </p>
        </div>
      )}
      {verdict.kind === 'unfit' && (
        <div class="notice warn">
          <p>{verdict.reason}</p>
        </div>
      )}
      {verdict.kind === 'fault' && <FaultNotice fault={verdict.fault} />}
    </div>
  )
}

export function ConsistencyForm({
  log,
  newest,
}: {
  readonly log: DescribedLog
  readonly newest: HeadPage
}) {
  const size = newest.heads[0]?.size ?? 0
  const [from, setFrom] = useState('')
  const [to, setTo] = useState('')
  const owner = { notary: log.notary, domain: domainOf(log) }
  const { verdict, run, drop } = useVerdict(async (signal) => {
    const range = {
      from: readCount(from, String(newest.heads.at(-1)?.size ?? 0), {
        name: 'First size',
        max: size,
      }),
      to: readCount(to, String(size), { name: 'Second size', max: size }),
    }
    if (range.from >= range.to)
      throw new UnfitInput('The first size must be smaller than the second size.')
    const [first, second] = await Promise.all([
      needHead(log, range.from, signal),
      needHead(log, range.to, signal),
    ])
    const path = await readConsistency(log.notary, { ...range, signal })
    const { added } = checkGrowth(owner, { first, second, path })
    return (
      <>
        The log of {second.size.toLocaleString('en')} leaves begins with all{' '}
        {first.size.toLocaleString('en')} of the first head, in their order;{' '}
        {added.toLocaleString('en')} were added. Both heads are signed by the notary.
      </>
    )
  })
  return (
    <form class="card" onSubmit={(event) => void run(event)} onInput={drop} noValidate={true}>
      <h3>Did it only grow between two heads?</h3>
      <div class="row">
        <SizeField
          id="consistency-from"
          name="First size"
          value={from}
          onChange={setFrom}
          placeholder={String(newest.heads.at(-1)?.size ?? 0)}
        />
        <SizeField
          id="consistency-to"
          name="Second size"
          value={to}
          onChange={setTo}
          placeholder={String(size)}
        />
      </div>
      <p>
        <button type="submit" class="primary" disabled={verdict.kind === 'busy' || size === 0}>
          Check consistency
        </button>
      </p>
      <VerdictPlace verdict={verdict} />
    </form>
  )
}

export function InclusionForm({
  log,
  newest,
}: {
  readonly log: DescribedLog
  readonly newest: HeadPage
}) {
  const size = newest.heads[0]?.size ?? 0
  const [index, setIndex] = useState('')
  const [leaf, setLeaf] = useState('')
  const owner = { notary: log.notary, domain: domainOf(log) }
  const { verdict, run, drop } = useVerdict(async (signal) => {
    const at = readCount(index, '0', { name: 'Leaf', max: size - 1 })
    const expected = readLeaf(leaf)
    const head = await needHead(log, size, signal)
    const { leafHash, path } = await readInclusion(log.notary, { index: at, size, signal })
    checkLeaf(owner, { head, index: at, leafHash, path, expected })
    return (
      <>
        Leaf <Count value={at} />, <Hex value={encodeHex(leafHash)} digits={8} />, is in the log of{' '}
        <Count value={size} /> leaves, and the notary signed the head
        {expected === null ? '.' : '. The leaf is as you expect.'}
      </>
    )
  })
  return (
    <form class="card" onSubmit={(event) => void run(event)} onInput={drop} noValidate={true}>
      <h3>Is a leaf in the log?</h3>
      <div class="row">
        <SizeField
          id="inclusion-index"
          name="Leaf, from 0"
          value={index}
          onChange={setIndex}
          placeholder="0"
        />
        <div class="field grow">
          <label for="inclusion-leaf">
            Its hash <span class="hint">if you have one to compare</span>
          </label>
          <input
            id="inclusion-leaf"
            class="wide mono"
            autocomplete="off"
            spellcheck={false}
            value={leaf}
            onInput={({ currentTarget }) => setLeaf(currentTarget.value)}
          />
        </div>
      </div>
      <p>
        <button type="submit" class="primary" disabled={verdict.kind === 'busy' || size === 0}>
          Check inclusion
        </button>
      </p>
      <VerdictPlace verdict={verdict} />
    </form>
  )
}

function SizeField({
  id,
  name,
  value,
  placeholder,
  onChange,
}: {
  readonly id: string
  readonly name: string
  readonly value: string
  readonly placeholder: string
  readonly onChange: (value: string) => void
}) {
  return (
    <div class="field">
      <label for={id}>{name}</label>
      <input
        id={id}
        value={value}
        placeholder={placeholder}
        class="count"
        inputMode="numeric"
        autocomplete="off"
        onInput={({ currentTarget }) => onChange(currentTarget.value)}
      />
    </div>
  )
}

function readCount(
  given: string,
  otherwise: string,
  { name, max }: { readonly name: string; readonly max: number },
): number {
  const text = given.trim() === '' ? otherwise : given.trim()
  const count = /^\d{1,15}$/.test(text) ? Number(text) : Number.NaN
  if (Number.isNaN(count) || count > max)
    throw new UnfitInput(`${name}: expected a whole number from 0 to ${Math.max(max, 0)}.`)
  return count
}

function readLeaf(given: string): Uint8Array | null {
  const text = given.trim().toLowerCase()
  if (text === '') return null
  if (!/^(0x)?[0-9a-f]{64}$/.test(text))
    throw new UnfitInput('Its hash: expected 64 hex digits, or nothing.')
  return decodeHex(text)
}

/** Throws UnfitInput if there is no signed head with exactly this size. */
async function needHead(log: DescribedLog, size: number, signal: AbortSignal): Promise<Head> {
  const head = await readHeadAt(log.notary, size, signal)
  if (head === null)
    throw new UnfitInput(
      `There is no signed tree head with ${size} leaves: choose a size from the list above.`,
    )
  return head
}
