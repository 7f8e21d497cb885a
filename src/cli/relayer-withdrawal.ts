import { setTimeout as sleep } from 'node:timers/promises'
import { formatEther, getAddress, parseEther, SigningKey, Transaction } from 'ethers'
import { printable } from '#attestation/report/printable.ts'
import { createRpc, type Rpc, RpcError } from '#client/rpc.ts'
import { fetchAccountFacts, fetchChainView, fetchReceipts } from '../chain/chain-reads.ts'
import type { RelayerDescription } from '../chain/relayer-acts.ts'
import { relayerAddress } from '../chain/sign-anchor.ts'
import { CliError, convertFault, EXIT_CODES } from './faults.ts'
import { withGateway } from './operations.ts'
import { readRelayerKey } from './operator/config.ts'
import { estimateGas, fetchFees, sendTransaction } from './send-transaction.ts'

const POLL_MS = 1_000
/** Interval before the same line is printed again. */
const PRINT_INTERVAL_MS = 30_000

export type WithdrawOptions = {
  readonly rpc: string
  /** 0x and 40 hex digits. */
  readonly to: string
  /** This much ether stays in the relayer's account. */
  readonly leave: string
  readonly timeout: number
}

/**
 * Sends the remaining balance of a rotated relayer to another account. Waits until all anchors of
 * the relayer are confirmed, so that the transfer takes no nonce and no money from an anchor.
 * Throws CliError and ConfigurationError.
 */
export async function runWithdrawal({ rpc: url, to: given, leave, timeout }: WithdrawOptions) {
  const to = checkAddress(given)
  const key = readRelayerKey()
  const rpc = createRpc({ url })
  try {
    const { next_nonce: nonce } = await awaitSettled(relayerAddress(key))
    const sent = await signTransfer(rpc, { key, to, leaveWei: parseEther(leave), nonce })
    await sendTransaction(rpc, sent)
    process.stderr.write(`Sent as ${sent.txHash}; waiting for its block.\n`)
    await awaitMined(rpc, sent.txHash, timeout)
    process.stdout.write(`${formatEther(sent.valueWei)} ether sent to ${to}\n`)
  } catch (fault) {
    if (fault instanceof RpcError)
      throw new CliError(`the chain cannot be reached, or it refused: ${printable(fault.message)}`)
    throw fault
  } finally {
    await rpc.close()
  }
}

/** The checksum (EIP-55) of an address in mixed case reveals typing errors. */
function checkAddress(text: string): string {
  const toError = () =>
    new CliError(`${text} is not an address: its checksum is wrong`, EXIT_CODES.usage)
  return convertFault(() => getAddress(text).toLowerCase(), Error, toError)
}

async function awaitSettled(address: string): Promise<RelayerDescription> {
  return withGateway(async ({ relayers }) => {
    let printed = { line: '', at: 0 }
    for (;;) {
      const list = await relayers.list({})
      const relayer = list.relayers.find((one) => one.address === address)
      if (relayer === undefined)
        throw new CliError(
          `the database has no anchors of ${address}: is it another relayer's key?`,
        )
      if (relayer.current)
        throw new CliError(
          `the gateway signs with ${address}: set RELAYER_PRIVATE_KEY to another key, and ` +
            'restart all gateways',
        )
      if (relayer.unconfirmed === 0) return relayer
      const line = describeWait(relayer)
      if (line !== printed.line || performance.now() - printed.at > PRINT_INTERVAL_MS) {
        process.stderr.write(line)
        printed = { line, at: performance.now() }
      }
      await sleep(POLL_MS)
    }
  })
}

function describeWait({ pending, unconfirmed, balance_wei: balance, fault }: RelayerDescription) {
  const rest = balance === null ? printable(fault) : `${formatEther(balance)} ether left`
  return (
    `${unconfirmed} anchors of this account not confirmed, ${pending} of these pending ` +
    `(${rest}); waiting.\n`
  )
}

type Transfer = {
  readonly key: string
  readonly to: string
  readonly leaveWei: bigint
  /** The nonce after the relayer's last anchor. */
  readonly nonce: number | null
}

/** Throws if an earlier nonce is free or may belong to an anchor. */
async function signTransfer(rpc: Rpc, { key, to, leaveWei, nonce: next }: Transfer) {
  const from = relayerAddress(key)
  const { chainId } = await fetchChainView(rpc, from)
  const { balanceWei, nonce, pendingNonce } = await fetchAccountFacts(rpc, from)
  if (nonce < (next ?? 0))
    throw new CliError(
      `the database has used ${next} nonces of ${from}, but chain ${chainId} has ${nonce} of ` +
        "its transactions: is --rpc the gateways' chain?",
    )
  if (pendingNonce > nonce)
    throw new CliError(
      `${pendingNonce - nonce} transactions of ${from} wait for a block: run it again later`,
    )
  const { maxFeePerGas, maxPriorityFeePerGas } = await fetchFees(rpc)
  const gasLimit = await estimateGas(rpc, { from, to, value: '0x1' })
  const valueWei = balanceWei - gasLimit * maxFeePerGas - leaveWei
  if (valueWei <= 0n)
    throw new CliError(
      `${from} has ${formatEther(balanceWei)} ether on chain ${chainId}: too little to pay for a transfer`,
    )
  const transaction = Transaction.from({
    type: 2,
    chainId,
    nonce,
    to,
    value: valueWei,
    gasLimit,
    maxFeePerGas,
    maxPriorityFeePerGas,
  })
  transaction.signature = new SigningKey(key).sign(transaction.unsignedHash)
  return { raw: transaction.serialized, txHash: transaction.hash ?? '', valueWei }
}

async function awaitMined(rpc: Rpc, txHash: string, timeoutSeconds: number): Promise<void> {
  const until = performance.now() + timeoutSeconds * 1000
  for (;;) {
    const [receipt] = await fetchReceipts(rpc, [txHash]).catch((fault: unknown) => {
      if (fault instanceof RpcError) return [null]
      throw fault
    })
    if (receipt?.succeeded) return
    if (receipt)
      throw new CliError(`transaction ${txHash} reverted: can the account receive ether?`)
    if (performance.now() > until)
      throw new CliError(
        `transaction ${txHash} was sent, but it is in no block after ${timeoutSeconds} s`,
      )
    await sleep(POLL_MS)
  }
}
