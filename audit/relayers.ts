import { addressOf, type PointRecovery, recoverPublicKey } from '#attestation/account.ts'
import { decodeHex, equalBytes } from '#attestation/bytes.ts'
import { DEPLOYMENT } from '#attestation/contract/artifact.ts'
import { FormatError, ProofError } from '#attestation/errors.ts'
import { type AnchorCall, decodeAnchorCall } from '#attestation/evidence/anchor-transaction.ts'
import { orNull } from '#attestation/or-null.ts'
import { type LogDomain, treeHeadDigest } from '#attestation/tree-head.ts'
import type { GatewayContext } from './audit-context.ts'
import type { AnchorEvent, ChainAnchor, ChainSource } from './chain.ts'
import type { Ledger } from './findings.ts'

export type SearchContext = GatewayContext & {
  readonly chain: ChainSource
  /** The newest block when the audit began. The gateway may not serve newer anchors yet. */
  readonly toBlock: number
  readonly contracts: ReadonlySet<string>
  readonly hidden: Set<string>
}

/** Maximum number of look-ups per relayer. A relayer that only sends anchors needs few. */
const TRANSACTIONS_LOOKED_UP_MAX = 200

/**
 * Finds the purpose of every nonce that the relayers used. A transaction that does not anchor a
 * served head can anchor a hidden log, in this or another contract. Throws ChainFault.
 */
export async function auditRelayers(parts: SearchContext): Promise<void> {
  const { ledger, payers } = parts
  if (payers.addresses().length === 0)
    ledger.lack('transactions of relayers', 'none of the served heads is anchored')
  for (const relayer of payers.addresses()) await auditRelayer(relayer, parts)
}

async function auditRelayer(relayer: string, parts: SearchContext): Promise<void> {
  const { chain, ledger, payers, toBlock } = parts
  const sent = await chain.countSent(relayer, toBlock)
  if (sent === null)
    skipOld(ledger, `how many transactions ${relayer} had sent by block ${toBlock}`)
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
  ledger.skip(
    'transactions of relayers',
    `the endpoint does not keep state of that age, so it cannot say ${what}`,
  )
}

function reportRest(relayer: string, nonce: number, ledger: Ledger): void {
  ledger.find('relayer_transaction', {
    where: relayer,
    message:
      `more than ${TRANSACTIONS_LOOKED_UP_MAX} of its transactions, which were looked up here, ` +
      `belong to no served head; the rest, from nonce ${nonce} on, were not checked`,
  })
}

async function judge(
  { txHash, block }: { readonly txHash: string | null; readonly block: number },
  given: SearchContext & { readonly relayer: string; readonly nonce: number },
): Promise<void> {
  const { chain, ledger, listed, relayer, nonce } = given
  const [transaction = null] = txHash === null ? [] : await chain.fetchAnchors([txHash])
  const purpose: Purpose =
    transaction === null ? { kind: 'unknown' } : purposeOf(transaction, given)
  switch (purpose.kind) {
    case 'accounted':
      return ledger.remark('transactions of relayers', purpose.words)
    case 'anchor': {
      // If the gateway lists the log, the audit of that log reports this head.
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
            ? `nonce ${nonce} of the gateway's relayer ${relayer} was used in that block, but ` +
              'not by a transaction from that account'
            : `the gateway's relayer ${relayer} sent transaction ${txHash}, nonce ${nonce}, ` +
              'which is not an anchor of a served head; its data may be anything',
      })
  }
}

type Purpose =
  | { readonly kind: 'accounted'; readonly words: string }
  | {
      readonly kind: 'anchor'
      readonly notary: string
      readonly size: number
      readonly contract: string
    }
  | { readonly kind: 'unknown' }

function purposeOf(
  { to, input, receipt }: ChainAnchor,
  { contracts, chain, recover }: Pick<SearchContext, 'contracts' | 'chain' | 'recover'>,
): Purpose {
  // Without data, a transaction cannot send a head to a contract.
  if (to !== null && input.length === 0)
    return { kind: 'accounted', words: 'some are plain transfers of coins' }
  const made = receipt?.contractAddress ?? null
  const isDeployment =
    (to === null && made !== null && contracts.has(made)) ||
    (to === DEPLOYMENT.proxy &&
      equalBytes(input, decodeHex(DEPLOYMENT.data)) &&
      contracts.has(DEPLOYMENT.address))
  if (isDeployment) return { kind: 'accounted', words: 'the deployment of the contract' }
  const call = to === null ? null : orNull(() => decodeAnchorCall(input), FormatError)
  if (to === null || call === null) return { kind: 'unknown' }
  const notary = signerOf(call, { chainId: chain.chainId, contract: to }, recover)
  return notary === null
    ? { kind: 'unknown' }
    : { kind: 'anchor', notary, size: call.size, contract: to }
}

function signerOf(
  { size, root, signature }: AnchorCall,
  domain: LogDomain,
  recover: PointRecovery,
): string | null {
  const digest = treeHeadDigest(domain, { size, root })
  const findSigner = () => addressOf(recoverPublicKey({ digest, signature }, recover))
  return orNull(findSigner, FormatError, ProofError)
}

export function reportHidden(
  anchor: Pick<AnchorEvent, 'notary' | 'size' | 'blockNumber' | 'txHash' | 'address'>,
  sender: string,
  { ledger, hidden }: SearchContext,
): void {
  if (hidden.has(anchor.notary)) return
  hidden.add(anchor.notary)
  ledger.find('hidden_log', {
    where: `block ${anchor.blockNumber}`,
    message:
      `the gateway does not list the log of ${anchor.notary}, but its relayer ${sender} paid for ` +
      `a head of that log: size ${anchor.size}, in ${anchor.address}, by transaction ` +
      `${anchor.txHash}`,
  })
}
