import { z } from 'zod'
import { addressOf, recoverPublicKey } from '../../../attestation/account.ts'
import { decodeHex, equalBytes } from '../../../attestation/bytes.ts'
import { FormatError, ProofError } from '../../../attestation/errors.ts'
import { type AnchorCall, decodeAnchorCall } from '../../../attestation/evidence/anchor-transaction.ts'
import { treeHeadDigest } from '../../../attestation/tree-head.ts'
import { recoverPoint } from '../../../enclave/protocol/recover-point.ts'
import { DEPLOYMENT } from '../../chain/contract/artifact.ts'
import type { ChainAnchor } from './chain.ts'
import type { Ledger } from './findings.ts'
import { reportHidden, type SearchContext } from './hidden-logs.ts'

/**
 * Most transactions of one relayer that are looked up. A relayer that only anchors has few others.
 */
const TRANSACTIONS_LOOKED_UP_MAX = 200

/**
 * Accounts for every nonce of the relayers. Each nonce belongs to a transaction. One that is no
 * served anchor may anchor a hidden log, in this contract or in another. Throws ChainFault.
 */
export async function auditRelayers(parts: SearchContext): Promise<void> {
  const { ledger, payers } = parts
  if (payers.addresses().length === 0)
    ledger.lack('transactions of relayers', 'no head that is served is anchored')
  for (const relayer of payers.addresses()) await auditRelayer(relayer, parts)
}

async function auditRelayer(relayer: string, parts: SearchContext): Promise<void> {
  const { chain, ledger, payers, toBlock } = parts
  const sent = await chain.countSent(relayer, toBlock)
  if (sent === null) skipOld(ledger, `how many transactions ${relayer} had sent by block ${toBlock}`)
  let fromBlock = 0
  let lookups = 0
  for (const { start, end } of payers.gapsBelow(relayer, sent ?? payers.endOf(relayer))) {
    for (let nonce = start; nonce < end; nonce++) {
      if (lookups === TRANSACTIONS_LOOKED_UP_MAX) return reportRest(relayer, nonce, ledger)
      lookups++
      const found = await chain.findSent({ from: relayer, nonce }, { fromBlock, toBlock })
      if (found === null)
        return skipOld(ledger, `what ${relayer} sent with nonce ${nonce}, for no served head`)
      fromBlock = found.block
      await judge(found, { ...parts, relayer, nonce })
    }
  }
  ledger.pass('transactions of relayers')
}

function skipOld(ledger: Ledger, what: string): void {
  ledger.skip('transactions of relayers', `the endpoint keeps no state that old, so it cannot say ${what}`)
}

function reportRest(relayer: string, nonce: number, ledger: Ledger): void {
  ledger.find('relayer_transaction', {
    where: relayer,
    message: `more than ${TRANSACTIONS_LOOKED_UP_MAX} of its transactions, those looked up here, were sent for no served head; the rest, from nonce ${nonce} on, were not looked at`,
  })
}

async function judge(
  { txHash, block }: { readonly txHash: string | null; readonly block: number },
  given: SearchContext & { readonly relayer: string; readonly nonce: number },
): Promise<void> {
  const { chain, ledger, listed, relayer, nonce } = given
  const [transaction = null] = txHash === null ? [] : await chain.fetchAnchors([txHash])
  const purpose: Purpose = transaction === null ? { kind: 'unknown' } : purposeOf(transaction, given)
  switch (purpose.kind) {
    case 'accounted':
      return ledger.note('transactions of relayers', purpose.words)
    case 'anchor': {
      // Whether its head is served, the audit of that log tells.
      if (listed.has(purpose.notary)) return
      const { notary, size, contract: address } = purpose
      const anchor = { notary, size, address, blockNumber: block, txHash: txHash ?? '' }
      return reportHidden(anchor, relayer, given)
    }
    case 'unknown':
      return ledger.find('relayer_transaction', {
        where: `block ${block}`,
        message:
          txHash === null
            ? `nonce ${nonce} of the gateway's relayer ${relayer} was taken there, and not by a transaction of its own`
            : `the gateway's relayer ${relayer} sent transaction ${txHash}, nonce ${nonce}, which is no anchor of a served head, and whose data may be anything`,
      })
  }
}

type Purpose =
  | { readonly kind: 'accounted'; readonly words: string }
  | { readonly kind: 'anchor'; readonly notary: string; readonly size: number; readonly contract: string }
  | { readonly kind: 'unknown' }

/** What a transaction was for, by its own data alone. */
function purposeOf(
  { to, input, receipt }: ChainAnchor,
  { contracts, chain }: Pick<SearchContext, 'contracts' | 'chain'>,
): Purpose {
  // Without data it brings no head to anybody.
  if (to !== null && input.length === 0) return { kind: 'accounted', words: 'some transfers of coins alone' }
  const made = receipt?.contractAddress ?? null
  const isDeployment =
    (to === null && made !== null && contracts.has(made)) ||
    (to === DEPLOYMENT.proxy &&
      equalBytes(input, decodeHex(DEPLOYMENT.data)) &&
      contracts.has(DEPLOYMENT.address))
  if (isDeployment) return { kind: 'accounted', words: 'the deployment of the contract' }
  const call = to === null ? null : attempt(() => decodeAnchorCall(input))
  if (to === null || call === null) return { kind: 'unknown' }
  const notary = signerOf(call, { chainId: chain.chainId, contract: to })
  return notary === null ? { kind: 'unknown' } : { kind: 'anchor', notary, size: call.size, contract: to }
}

function signerOf(
  { size, root, signature }: AnchorCall,
  domain: { readonly chainId: number; readonly contract: string },
): string | null {
  const digest = treeHeadDigest(domain, { size, root })
  return attempt(() => addressOf(recoverPublicKey({ digest, signature }, recoverPoint)))
}

function attempt<Value>(run: () => Value): Value | null {
  try {
    return run()
  } catch (fault) {
    if (fault instanceof FormatError || fault instanceof ProofError) return null
    throw fault
  }
}

/**
 * The relayers of a gateway: who paid for the anchors that it serves, as the chain says, and with
 * which nonces. Of all logs that this audit came to, and those that it goes on from.
 */
export type Payers = ReturnType<typeof openPayers>

/** Gives payers that go on from those that were written; null: from a state that has none. */
export function openPayers(written: WrittenPayers | null = {}) {
  const nonces = new Map(
    Object.entries(written ?? {}).map(([address, ranges]) => [
      address,
      new NonceSet(ranges.map(([start, end]) => ({ start, end }))),
    ]),
  )
  return {
    /** False when a run of an earlier version walked heads without noting who paid for them. */
    isWhole: written !== null,
    note({ address, nonce }: { readonly address: string; readonly nonce: number }): void {
      const known = nonces.get(address) ?? new NonceSet()
      known.add(nonce)
      nonces.set(address, known)
    },
    has: (address: string): boolean => nonces.has(address),
    addresses: (): readonly string[] => [...nonces.keys()],
    /** Nonces below `end` that no served anchor was sent with. */
    gapsBelow: (address: string, end: number): readonly NonceRange[] =>
      (nonces.get(address) ?? new NonceSet()).gapsBelow(end),
    /** The first nonce above all that were noted. */
    endOf: (address: string): number => nonces.get(address)?.end ?? 0,
    write: (): WrittenPayers =>
      Object.fromEntries(
        [...nonces].map(([address, set]) => [address, set.list().map(({ start, end }) => [start, end])]),
      ),
  }
}

const Nonce = z.int().min(0)

/** Ranges of nonces (start, end) by address, as a state file has them. */
export const WrittenPayersForm = z.record(
  z.string().regex(/^0x[0-9a-f]{40}$/),
  z
    .array(z.tuple([Nonce, Nonce]))
    .refine(
      (ranges) => ranges.every(([start, end], at) => start < end && start > (ranges[at - 1]?.[1] ?? -1)),
      'expected ranges of nonces, ascending and apart',
    ),
)

/** Payers as a state file has them. */
export type WrittenPayers = z.infer<typeof WrittenPayersForm>

/** Nonces from `start` to before `end`. */
type NonceRange = { readonly start: number; readonly end: number }

/**
 * Nonces of one account, as ranges: a relayer that only anchors has one, however many anchors it
 * paid for.
 */
export class NonceSet {
  /** Ascending; between two of them at least one nonce is missing. */
  private ranges: NonceRange[]

  constructor(ranges: readonly NonceRange[] = []) {
    this.ranges = [...ranges]
  }

  /** The first nonce above all that are in it. */
  get end(): number {
    return this.ranges.at(-1)?.end ?? 0
  }

  add(nonce: number): void {
    const at = this.countBelow(nonce)
    const before = this.ranges[at - 1]
    if (before !== undefined && nonce < before.end) return
    const after = this.ranges[at]
    const joinsBefore = before?.end === nonce
    const joinsAfter = after?.start === nonce + 1
    const start = joinsBefore ? before.start : nonce
    const end = joinsAfter ? after.end : nonce + 1
    this.ranges.splice(at - (joinsBefore ? 1 : 0), Number(joinsBefore) + Number(joinsAfter), { start, end })
  }

  /** Nonces below `end` that are not in it, ascending. */
  gapsBelow(end: number): readonly NonceRange[] {
    const starts = [0, ...this.ranges.map((range) => range.end)]
    const ends = [...this.ranges.map((range) => range.start), end]
    return starts
      .map((start, at) => ({ start, end: Math.min(ends[at] ?? end, end) }))
      .filter((gap) => gap.start < gap.end)
  }

  list(): readonly NonceRange[] {
    return this.ranges
  }

  /** How many ranges begin at or below the nonce. */
  private countBelow(nonce: number): number {
    let low = 0
    let high = this.ranges.length
    while (low < high) {
      const middle = Math.floor((low + high) / 2)
      if ((this.ranges[middle]?.start ?? 0) <= nonce) low = middle + 1
      else high = middle
    }
    return low
  }
}
