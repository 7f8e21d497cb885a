import { setTimeout as sleep } from 'node:timers/promises'
import { formatEther, SigningKey, Transaction } from 'ethers'
import { DEPLOYMENT } from '#attestation/contract/artifact.ts'
import { printable } from '#attestation/report/printable.ts'
import { ChainFault, type ChainSource, openChainSource } from '#audit/chain.ts'
import { createRpc, type Rpc, RpcError } from '#client/rpc.ts'
import { fetchBalance, fetchChainView, fetchReceipts, hasCode } from '../chain/chain-reads.ts'
import { relayerAddress } from '../chain/sign-anchor.ts'
import { ConfigurationError } from '../runtime/read-settings.ts'
import { CliError } from './faults.ts'
import { readDeployerKey } from './operator/config.ts'
import { jsonText } from './printable.ts'
import { estimateGas, fetchFees, sendTransaction } from './send-transaction.ts'

const RECEIPT_POLL_MS = 1_000

export type DeployOptions = {
  readonly rpc: string
  readonly timeout: number
  readonly json?: boolean
}

/** Throws CliError and ConfigurationError. */
export async function runDeployment({ rpc: url, timeout, json }: DeployOptions): Promise<void> {
  const deployerKey = readDeployerKey()
  const print = (line: string) => process.stderr.write(`${line}\n`)
  const rpc = createRpc({ url })
  try {
    const deployment = await deployContract({ rpc, deployerKey, timeoutMs: timeout * 1000, print })
    print(deployment.sent === null ? 'The contract is already there.' : 'The contract is deployed.')
    process.stdout.write(json ? formatDeploymentJson(deployment) : formatDeploymentText(deployment))
  } catch (fault) {
    if (fault instanceof RpcError || fault instanceof ChainFault)
      throw new CliError(`the chain cannot be reached, or it refused: ${printable(fault.message)}`)
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

/** `address` has the code of this release. */
type Deployment = {
  readonly address: string
  readonly chainId: number
  /**
   * The transaction that deployed the contract. Null if the contract existed, or if another
   * transaction deployed the contract first. Then this run's transaction may still wait, and will
   * revert.
   */
  readonly sent: {
    readonly txHash: string
    readonly blockNumber: number
    readonly gasUsed: number
  } | null
}

/**
 * Deploys the contract of this release, unless the chain has it. Waits for the block for at most
 * `timeoutMs` and one round of requests. A repeated call is safe: the contract's address does not
 * depend on the sender. Throws CliError, RpcError or ChainFault. Throws ConfigurationError if a
 * needed key is missing. Does NOT wait for confirmations: a reorganisation can remove the contract
 * again.
 */
async function deployContract({
  rpc,
  deployerKey,
  timeoutMs,
  print,
}: {
  readonly rpc: Rpc
  /** 0x and 64 hex digits. Null if the key is not set. */
  readonly deployerKey: string | null
  readonly timeoutMs: number
  readonly print: (line: string) => void
}): Promise<Deployment> {
  const { signal } = new AbortController()
  const chain = await openChainSource(rpc, { sleep: (durationMs) => sleep(durationMs), signal })
  const place = { address: DEPLOYMENT.address, chainId: chain.chainId }
  if (await chain.hasContract(place.address)) return { ...place, sent: null }
  if (deployerKey === null)
    throw new ConfigurationError([
      'DEPLOYER_PRIVATE_KEY: expected a key, to pay for the deployment',
    ])
  if (!(await hasCode(rpc, DEPLOYMENT.proxy))) throw proxyMissing(chain.chainId)
  const { raw, txHash } = await signDeployment(rpc, deployerKey)
  await sendTransaction(rpc, { raw, txHash })
  print(`Sent to chain ${chain.chainId} as ${txHash}; waiting for its block.`)
  return { ...place, sent: await awaitContract({ rpc, chain, txHash }, timeoutMs) }
}

function proxyMissing(chainId: number): CliError {
  return new CliError(
    `chain ${chainId} has no deterministic deployment proxy at ${DEPLOYMENT.proxy}: deploy it as ` +
      'github.com/Arachnid/deterministic-deployment-proxy says, or send the bytecode yourself ' +
      '(contracts/README.md)',
  )
}

/** Throws before signing if the account cannot pay. */
async function signDeployment(
  rpc: Rpc,
  deployerKey: string,
): Promise<{ readonly raw: string; readonly txHash: string }> {
  const from = relayerAddress(deployerKey)
  const { proxy: to, data } = DEPLOYMENT
  const { chainId, nonce } = await fetchChainView(rpc, from)
  const { maxFeePerGas, maxPriorityFeePerGas } = await fetchFees(rpc)
  // Gas and nonce are read at the newest block, not in the pending state, which may already have
  // the contract from an earlier run's transaction.
  const gasLimit = await estimateGas(rpc, { from, to, data })
  const balance = await fetchBalance(rpc, from)
  const needed = gasLimit * maxFeePerGas
  if (balance < needed)
    throw new CliError(
      `the account of DEPLOYER_PRIVATE_KEY, ${from}, has ${formatEther(balance)} ether on ` +
        `chain ${chainId}, and ` +
        `${formatEther(needed)} are needed (the actual cost is lower): send ether to it`,
    )
  const transaction = Transaction.from({
    type: 2,
    chainId,
    nonce,
    to,
    data,
    gasLimit,
    maxFeePerGas,
    maxPriorityFeePerGas,
  })
  transaction.signature = new SigningKey(deployerKey).sign(transaction.unsignedHash)
  return { raw: transaction.serialized, txHash: transaction.hash ?? '' }
}

type Sent = { readonly rpc: Rpc; readonly chain: ChainSource; readonly txHash: string }

/** Null if another transaction deployed the contract. Asks an unreachable endpoint again. */
async function awaitContract(sent: Sent, timeoutMs: number): Promise<Deployment['sent']> {
  const until = performance.now() + timeoutMs
  for (;;) {
    const found = await lookFor(sent).catch(describeFault)
    if (typeof found !== 'string') return found
    if (performance.now() > until)
      throw new CliError(
        `transaction ${sent.txHash} was sent, but after ${timeoutMs / 1000} s ${found}: run ` +
          'the command again later: it reports when the contract is there',
      )
    await sleep(RECEIPT_POLL_MS)
  }
}

/**
 * If the contract does not exist yet, returns a text that states what is missing. Several nodes
 * behind one address may show the receipt before the contract.
 */
async function lookFor({ rpc, chain, txHash }: Sent): Promise<Deployment['sent'] | string> {
  const [early] = await fetchReceipts(rpc, [txHash])
  const isThere = await chain.hasContract(DEPLOYMENT.address)
  // A new block may have arrived between the two requests.
  const [receipt] = isThere && !early ? await fetchReceipts(rpc, [txHash]) : [early]
  // This transaction was dropped or replaced, or another deployment was faster.
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
