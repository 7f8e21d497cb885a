import { z } from 'zod'
import { printable } from '#attestation/report/printable.ts'
import { BigQuantity, Hash, readAs } from '#audit/rpc-forms.ts'
import { type Rpc, RpcError } from '#client/rpc.ts'
import { CliError } from './faults.ts'

/** The tip if the endpoint suggests no tip: 1 gwei, as in ethers' getFeeData. */
const TIP_DEFAULT_WEI = 1_000_000_000n

/**
 * Returns wei per gas. The maximum is twice the base fee plus the suggested tip: enough even after
 * six full blocks (EIP-1559). Throws CliError and RpcError.
 */
export async function fetchFees(
  rpc: Rpc,
): Promise<{ readonly maxFeePerGas: bigint; readonly maxPriorityFeePerGas: bigint }> {
  const [block, suggested] = await rpc.batch([
    { method: 'eth_getBlockByNumber', params: ['latest', false] },
    { method: 'eth_maxPriorityFeePerGas', params: [] },
  ])
  const { baseFeePerGas } = readAs(FeeBlock, block)
  if (baseFeePerGas === undefined)
    throw new CliError(
      'the chain has no base fee (EIP-1559); the gateway needs one for its anchors, too',
    )
  const tip = suggested?.kind === 'result' ? toBigInt(suggested.value) : TIP_DEFAULT_WEI
  return { maxFeePerGas: 2n * BigInt(baseFeePerGas) + tip, maxPriorityFeePerGas: tip }
}

const FeeBlock = z.object({ baseFeePerGas: BigQuantity.optional() })

function toBigInt(value: unknown): bigint {
  return BigInt(readAs(BigQuantity, { kind: 'result', value }))
}

/**
 * Returns the endpoint's estimate at the newest block, plus a quarter. Unused gas costs nothing.
 * Throws RpcError.
 */
export async function estimateGas(
  rpc: Rpc,
  call: Readonly<Record<'from' | 'to', string>> & {
    readonly data?: string
    readonly value?: string
  },
): Promise<bigint> {
  return (toBigInt(await rpc.call('eth_estimateGas', [call, 'latest'])) * 5n) / 4n
}

/** Resolves when the endpoint has the transaction, from this run or an earlier one. */
export async function sendTransaction(
  rpc: Rpc,
  { raw, txHash }: { readonly raw: string; readonly txHash: string },
): Promise<void> {
  try {
    await rpc.call('eth_sendRawTransaction', [raw])
  } catch (fault) {
    if (!(fault instanceof RpcError)) throw fault
    if (fault.code !== 'refused')
      throw new CliError(
        `${printable(fault.message)}: transaction ${txHash} may have been sent; run the ` +
          'command again: it continues from there',
      )
    // An earlier run may have sent this transaction, or a transaction with this nonce and other
    // fees.
    if (await isKnown(rpc, txHash)) return
    throw new CliError(
      `the chain refused transaction ${txHash}: ${printable(fault.message)}; the transaction ` +
        'of an earlier run may ' +
        'still be waiting for its block: run the command again later',
    )
  }
}

/** True if mined or pending. False if the endpoint does not answer. */
async function isKnown(rpc: Rpc, txHash: string): Promise<boolean> {
  try {
    const value = await rpc.call('eth_getTransactionByHash', [txHash])
    return readAs(KnownTransaction.nullable(), { kind: 'result', value })?.hash === txHash
  } catch (fault) {
    // The user sees the endpoint's refusal instead, because the refusal matters more.
    if (fault instanceof RpcError) return false
    throw fault
  }
}

const KnownTransaction = z.object({ hash: Hash })
