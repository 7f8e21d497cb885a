import { encodeHex, equalBytes } from '../../../attestation/bytes.ts'
import { FormatError } from '../../../attestation/errors.ts'
import { type AnchorCall, decodeAnchorCall } from '../../../attestation/evidence/anchor-call.ts'
import { FUTURE_SKEW_MS_DEFAULT } from '../../../attestation/nitro/policy.ts'
import type { ServedHead, ServedLog } from './answers.ts'
import { decodeAnchorEvent } from './chain-forms.ts'
import type { ChainAnchor, ChainReceipt, ChainSource } from './chain-source.ts'
import type { Ledger } from './ledger.ts'
import type { Payers } from './payers.ts'
import { isoOf } from './timeline.ts'

/** Longest that a head may wait for its anchor without being reported, milliseconds: chains take minutes. */
export const ANCHOR_WAIT_MAX_MS = 60 * 60 * 1000

/** Most heads that wait for their anchor and are looked at again by the next run. */
export const WAITING_MAX = 10_000

/** Anchors asked for at once: two calls for each. */
const BATCH_HEADS_MAX = 50

/** Checks the anchors of one log's heads. */
export type AnchorAudit = {
  /** `attestedAtMs`: by when the enclave attested so many leaves, Unix milliseconds, so far as is known. */
  check(heads: readonly ServedHead[], attestedAtMs?: AttestedAt): Promise<void>
  /** Heads whose anchor was in no block yet. */
  waiting(): readonly ServedHead[]
}

export type AttestedAt = (size: number) => number | null

/** Gives the audit of the anchors of `log`. Without a chain, only what the gateway itself says is looked at. */
export function createAnchorAudit(
  log: ServedLog,
  given: {
    readonly ledger: Ledger
    readonly chain: ChainSource | null
    /** Told who paid for each anchor that is in a block, whatever else is wrong with it. */
    readonly payers: Pick<Payers, 'note'>
    readonly nowMs: number
  },
): AnchorAudit {
  const { ledger, chain, payers, nowMs } = given
  const waiting: ServedHead[] = []

  /** The head's own time is the gateway's word: it may say that a head is always young. */
  function wait(head: ServedHead, attestedAtMs: AttestedAt): void {
    const where = whereOf(head)
    const { txHash } = head.anchor
    const saidMs = head.createdAt * 1000
    const waitedMs = nowMs - Math.min(saidMs, attestedAtMs(head.size) ?? saidMs)
    if (waitedMs > ANCHOR_WAIT_MAX_MS)
      ledger.find('anchor_overdue', {
        where,
        message: `transaction ${txHash} is in no block after ${Math.floor(waitedMs / 60_000)} minutes`,
      })
    else if (waitedMs < -FUTURE_SKEW_MS_DEFAULT)
      ledger.find('anchor_overdue', {
        where,
        message: `transaction ${txHash} is in no block, and the gateway dates the head in the future, ${isoOf(saidMs)}`,
      })
    else
      ledger.skip(
        'anchors on chain',
        'heads of the last hour, as the gateway dates them, wait for their anchor',
      )
    if (waiting.length < WAITING_MAX) waiting.push(head)
  }

  function judge(head: ServedHead, found: ChainAnchor | null, attestedAtMs: AttestedAt): void {
    const where = whereOf(head)
    const { txHash, state } = head.anchor
    const receipt = found?.receipt ?? null
    if (found === null || receipt === null) {
      const told = found === null ? 'the chain does not know' : 'no block has'
      if (state === 'pending') wait(head, attestedAtMs)
      else
        ledger.find('anchor_missing', {
          where,
          message: `the gateway says ${state}, but ${told} transaction ${txHash}`,
        })
      return
    }
    payers.note({ address: found.from, nonce: found.nonce })
    const faults = compareAnchor(head, { found, receipt, log })
    if (receipt.status !== 1)
      ledger.find('anchor_reverted', {
        where,
        message: `transaction ${txHash} failed in block ${receipt.blockNumber}`,
      })
    else if (faults.length > 0)
      ledger.find('anchor_mismatch', { where, message: `transaction ${txHash} ${faults.join('; ')}` })
    else ledger.pass('anchors on chain')
  }

  return {
    waiting: () => waiting,
    async check(heads, attestedAtMs = () => null) {
      for (let start = 0; start < heads.length; start += BATCH_HEADS_MAX) {
        const part = heads.slice(start, start + BATCH_HEADS_MAX)
        if (chain === null)
          for (const head of part) judgeUnasked(head, { ledger, wait: () => wait(head, attestedAtMs) })
        else {
          const found = await chain.fetchAnchors(part.map(({ anchor }) => anchor.txHash))
          for (const [at, head] of part.entries()) judge(head, found[at] ?? null, attestedAtMs)
        }
      }
    },
  }
}

/** What the gateway says against itself. */
function judgeUnasked(
  head: ServedHead,
  { ledger, wait }: { readonly ledger: Ledger; readonly wait: () => void },
): void {
  if (head.anchor.state === 'pending') wait()
  if (head.anchor.state === 'reverted')
    ledger.find('anchor_reverted', { where: whereOf(head), message: 'the gateway itself says so' })
}

function compareAnchor(
  head: ServedHead,
  {
    found,
    receipt,
    log,
  }: { readonly found: ChainAnchor; readonly receipt: ChainReceipt; readonly log: ServedLog },
): readonly string[] {
  const { contract } = log.domain
  const call = decodeCall(found.input)
  const isCall =
    call !== null &&
    call.size === head.size &&
    equalBytes(call.root, head.root) &&
    equalBytes(call.signature, head.signature)
  const hasEvent = receipt.logs.some((entry) => {
    const event = decodeAnchorEvent(entry)
    return (
      event?.kind === 'anchored' &&
      event.address === contract &&
      event.notary === log.notary &&
      event.size === head.size &&
      equalBytes(event.root, head.root)
    )
  })
  const { state, blockHash, blockNumber } = head.anchor
  // A block that is only "mined" may have been replaced since the gateway looked.
  const isInBlock =
    state !== 'confirmed' || (blockHash === receipt.blockHash && blockNumber === receipt.blockNumber)
  return [
    ...(found.to === contract ? [] : [`calls ${found.to ?? 'no account'} instead of ${contract}`]),
    ...(isCall ? [] : [`does not bring this head (root ${encodeHex(head.root)}) with its signature`]),
    ...(hasEvent ? [] : ['has not the event of the contract for this head']),
    ...(isInBlock
      ? []
      : [`is in block ${receipt.blockNumber}, ${receipt.blockHash}, not where the gateway says`]),
  ]
}

function decodeCall(input: Uint8Array): AnchorCall | null {
  try {
    return decodeAnchorCall(input)
  } catch (fault) {
    if (fault instanceof FormatError) return null
    throw fault
  }
}

function whereOf({ size }: ServedHead): string {
  return `head ${size}`
}
