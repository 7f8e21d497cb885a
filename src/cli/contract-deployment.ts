import { setTimeout as sleep } from 'node:timers/promises'
import { formatEther, SigningKey, Transaction } from 'ethers'
import { z } from 'zod'
import { relayerAddress } from '../chain/anchor-transaction.ts'
import { fetchBalance, fetchChainView, fetchReceipts, hasCode } from '../chain/chain-reads.ts'
import { DEPLOYMENT } from '../chain/contract/artifact.ts'
import { BigQuantity, createRpc, Hash, type Rpc, RpcError, readAs } from '../chain/rpc.ts'
import { ConfigurationError } from '../runtime/read-settings.ts'
import { ChainFault, type ChainSource, openChainSource } from './audit/chain.ts'
import { readDeployerKey } from './config.ts'
import { CliError } from './faults.ts'
import { jsonText, printable } from './printable.ts'

/** Tip where the endpoint names none: 1 gwei, as ethers' getFeeData has it. */
const TIP_DEFAULT_WEI = 1_000_000_000n
const RECEIPT_POLL_MS = 1_000

/** What the options say, as commander gives it. */
export type DeployOptions = {
  readonly rpc: string
  readonly timeout: number
  readonly json?: boolean
}

/**
 * Deploys the contract as the options say, and tells the outcome. Throws CliError,
 * ConfigurationError.
 */
export async function runDeployment({ rpc: url, timeout, json }: DeployOptions): Promise<void> {
  const deployerKey = readDeployerKey()
  const tell = (line: string) => process.stderr.write(`${line}\n`)
  const rpc = createRpc({ url })
  try {
    const deployment = await deployContract({ rpc, deployerKey, timeoutMs: timeout * 1000, tell })
    tell(deployment.sent === null ? 'The contract is there already.' : 'The contract is deployed.')
    process.stdout.write(json ? formatDeploymentJson(deployment) : formatDeploymentText(deployment))
  } catch (fault) {
    if (fault instanceof RpcError || fault instanceof ChainFault)
      throw new CliError(`the chain cannot be asked, or refused: ${printable(fault.message)}`)
    throw fault
  } finally {
    await rpc.close()
  }
}

function formatDeploymentJson({ address, chainId, sent }: Deployment): string {
  return jsonText({
    address,
    chain_id: chainId,
    deployed: sent !== null,
    transaction: sent?.txHash ?? null,
    block: sent?.blockNumber ?? null,
    gas_used: sent?.gasUsed ?? null,
  })
}

function formatDeploymentText({ address, chainId, sent }: Deployment): string {
  const lines = [`address      ${address}`, `chain id     ${chainId}`]
  if (sent !== null)
    lines.push(
      `transaction  ${sent.txHash}`,
      `block        ${sent.blockNumber}`,
      `gas used     ${sent.gasUsed}`,
    )
  return `${lines.join('\n')}\n`
}

/** Where the contract is, its code compared with this release's. */
type Deployment = {
  readonly address: string
  readonly chainId: number
  /**
   * The transaction that made it; null: it was there already, or another came first. One that this
   * run sent may then still be waiting: it reverts, should it come into a block.
   */
  readonly sent: {
    readonly txHash: string
    readonly blockNumber: number
    readonly gasUsed: number
  } | null
}

/**
 * Deploys the contract of this release unless it is there, and waits for its block, `timeoutMs` at
 * most (and one round of questions more). May be repeated: the address does not depend on who
 * sends. Throws CliError, RpcError or ChainFault; ConfigurationError when a key is needed and there
 * is none.
 *
 * Does NOT wait for confirmations: a reorganisation can take the contract away again, as any
 * transaction.
 */
async function deployContract({
  rpc,
  deployerKey,
  timeoutMs,
  tell,
}: {
  readonly rpc: Rpc
  /** 0x and 64 hex digits. */
  readonly deployerKey: string | null
  readonly timeoutMs: number
  /** Gets a line for people, before the wait. */
  readonly tell: (line: string) => void
}): Promise<Deployment> {
  const { signal } = new AbortController()
  const chain = await openChainSource(rpc, { sleep: (durationMs) => sleep(durationMs), signal })
  const place = { address: DEPLOYMENT.address, chainId: chain.chainId }
  if (await chain.hasContract(place.address)) return { ...place, sent: null }
  if (deployerKey === null)
    throw new ConfigurationError(['DEPLOYER_PRIVATE_KEY: expected, to pay for the deployment'])
  if (!(await hasCode(rpc, DEPLOYMENT.proxy))) throw proxyMissing(chain.chainId)
  const { raw, txHash } = await signDeployment(rpc, deployerKey)
  await send(rpc, { raw, txHash })
  tell(`Sent to chain ${chain.chainId} as ${txHash}; waiting for its block.`)
  return { ...place, sent: await awaitContract({ rpc, chain, txHash }, timeoutMs) }
}

function proxyMissing(chainId: number): CliError {
  return new CliError(
    `chain ${chainId} has no deterministic deployment proxy at ${DEPLOYMENT.proxy}: put it there as ` +
      'github.com/Arachnid/deterministic-deployment-proxy says, or send the bytecode yourself (src/chain/contract/README.md)',
  )
}

/** Nothing is sent for an account that cannot pay. */
async function signDeployment(
  rpc: Rpc,
  deployerKey: string,
): Promise<{ readonly raw: string; readonly txHash: string }> {
  const from = relayerAddress(deployerKey)
  const { proxy: to, data } = DEPLOYMENT
  const { chainId, nonce } = await fetchChainView(rpc, from)
  const { maxFeePerGas, maxPriorityFeePerGas } = await fetchFees(rpc)
  // Of the newest block, as the nonce: where an earlier run's transaction waits, the state after it
  // has the contract.
  const estimate = await rpc.call('eth_estimateGas', [{ from, to, data }, 'latest'])
  // A quarter more: an estimate is for the newest block, and what is not used is not paid.
  const gasLimit = (toBigInt(estimate) * 5n) / 4n
  const balance = await fetchBalance(rpc, from)
  const needed = gasLimit * maxFeePerGas
  if (balance < needed)
    throw new CliError(
      `the account of DEPLOYER_PRIVATE_KEY, ${from}, has ${formatEther(balance)} ether on chain ${chainId}, and ` +
        `${formatEther(needed)} are needed (less will be paid): send it some`,
    )
  const transaction = Transaction.from({
    ...{ type: 2, chainId, nonce, to, data, gasLimit },
    ...{ maxFeePerGas, maxPriorityFeePerGas },
  })
  transaction.signature = new SigningKey(deployerKey).sign(transaction.unsignedHash)
  return { raw: transaction.serialized, txHash: transaction.hash ?? '' }
}

/**
 * Twice the base fee, which lasts six full blocks of growth (EIP-1559), and the tip that the
 * endpoint suggests.
 */
async function fetchFees(
  rpc: Rpc,
): Promise<{ readonly maxFeePerGas: bigint; readonly maxPriorityFeePerGas: bigint }> {
  const [block, suggested] = await rpc.batch([
    { method: 'eth_getBlockByNumber', params: ['latest', false] },
    { method: 'eth_maxPriorityFeePerGas', params: [] },
  ])
  const { baseFeePerGas } = readAs(FeeBlock, block)
  if (baseFeePerGas === undefined)
    throw new CliError(
      'the chain has no base fee (EIP-1559), which the gateway needs for anchors, too',
    )
  const tip = suggested?.kind === 'result' ? toBigInt(suggested.value) : TIP_DEFAULT_WEI
  return { maxFeePerGas: 2n * BigInt(baseFeePerGas) + tip, maxPriorityFeePerGas: tip }
}

const FeeBlock = z.object({ baseFeePerGas: BigQuantity.optional() })

function toBigInt(value: unknown): bigint {
  return BigInt(readAs(BigQuantity, { kind: 'result', value }))
}

/** Gives back when the endpoint has the transaction: it took it now, or from an earlier run. */
async function send(
  rpc: Rpc,
  { raw, txHash }: { readonly raw: string; readonly txHash: string },
): Promise<void> {
  try {
    await rpc.call('eth_sendRawTransaction', [raw])
  } catch (fault) {
    if (!(fault instanceof RpcError)) throw fault
    if (fault.code !== 'refused')
      throw new CliError(
        `${printable(fault.message)}: transaction ${txHash} may have been sent; run the command again, which sees to it`,
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

/** A transaction that was sent, and where it is looked for. */
type Sent = { readonly rpc: Rpc; readonly chain: ChainSource; readonly txHash: string }

/**
 * Null when the contract is there, but not by this transaction. An endpoint that is away is asked
 * again.
 */
async function awaitContract(sent: Sent, timeoutMs: number): Promise<Deployment['sent']> {
  const until = performance.now() + timeoutMs
  for (;;) {
    const found = await lookFor(sent).catch(describeFault)
    if (typeof found !== 'string') return found
    if (performance.now() > until)
      throw new CliError(
        `transaction ${sent.txHash} was sent, but after ${timeoutMs / 1000} s ${found}: run the command again later, it tells when the contract is there`,
      )
    await sleep(RECEIPT_POLL_MS)
  }
}

/**
 * What is lacking, in words, until the contract is there. Nodes behind one address may differ: a
 * receipt can come first.
 */
async function lookFor({ rpc, chain, txHash }: Sent): Promise<Deployment['sent'] | string> {
  const [early] = await fetchReceipts(rpc, [txHash])
  const isThere = await chain.hasContract(DEPLOYMENT.address)
  // A block may have come between the two questions.
  const [receipt] = isThere && !early ? await fetchReceipts(rpc, [txHash]) : [early]
  // Without a receipt, ours was dropped or replaced, or another's was faster.
  if (!receipt) return isThere ? null : 'it is in no block'
  const { blockNumber, succeeded, gasUsed } = receipt
  if (isThere) return succeeded ? { txHash, blockNumber, gasUsed } : null
  if (!succeeded) throw new CliError(`transaction ${txHash} reverted in block ${blockNumber}`)
  return `the code at ${DEPLOYMENT.address} is not the contract of this release`
}

function describeFault(fault: unknown): string {
  if (fault instanceof RpcError || fault instanceof ChainFault) return printable(fault.message)
  throw fault
}
