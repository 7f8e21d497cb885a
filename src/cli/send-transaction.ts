import { z } from 'zod'
import { printable } from '../../attestation/report/printable.ts'
import { BigQuantity, Hash, readAs } from '../../audit/rpc-forms.ts'
import { type Rpc, RpcError } from '../../client/rpc.ts'
import { CliError } from './faults.ts'

/** Tip where the endpoint names none: 1 gwei, as ethers' getFeeData has it. */
const TIP_DEFAULT_WEI = 1_000_000_000n

/**
 * Fees of a transaction, wei per gas: twice the base fee, which lasts six full blocks of growth
 * (EIP-1559), and the tip that the endpoint suggests. Throws CliError, RpcError.
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
 * Gas limit of a call: what the endpoint estimates after the newest block, and a quarter more,
 * since what is not used is not paid. Throws RpcError.
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

/** Gives back when the endpoint has the transaction: it took it now, or from an earlier run. */
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
        `${printable(fault.message)}: transaction ${txHash} may have been sent; run the command again: it continues from there`,
      )
    // Until a block takes it, an earlier run's has this nonce: the same transaction, or with other
    // fees another one.
    if (await isKnown(rpc, txHash)) return
    throw new CliError(
      `the chain refused transaction ${txHash}: ${printable(fault.message)}; the transaction of an earlier run may ` +
        'still be waiting for its block: run the command again later',
    )
  }
}

/**
 * Whether the endpoint says that it has the transaction, in a block or waiting. False when it
 * cannot be asked.
 */
async function isKnown(rpc: Rpc, txHash: string): Promise<boolean> {
  try {
    const value = await rpc.call('eth_getTransactionByHash', [txHash])
    return readAs(KnownTransaction.nullable(), { kind: 'result', value })?.hash === txHash
  } catch (fault) {
    // The reader needs the refusal more than this.
    if (fault instanceof RpcError) return false
    throw fault
  }
}

const KnownTransaction = z.object({ hash: Hash })
