import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { getBytes, Wallet } from 'ethers'
import { createRpc, type Rpc } from '#client/rpc.ts'
import { signAnchorTransaction } from '#src/chain/sign-anchor.ts'
import { type LocalChain, startAnvil } from '#src/local/local-chain.ts'
import type { Logger } from '#src/observability/logger.ts'

/** Fees that any chain here accepts. */
export const TEST_FEES = {
  maxFeePerGasWei: 500_000_000_000n,
  maxPriorityFeePerGasWei: 1_000_000_000n,
}

export type TestChain = LocalChain & {
  readonly folder: string
  readonly port: number
  readonly rpc: Rpc
  /** Ends the chain and removes its folder. */
  dispose(): Promise<void>
}

/**
 * A real local chain with the contract, in a new folder and on a free port unless they are given.
 */
export async function startTestChain(
  options: {
    readonly folder?: string
    readonly port?: number
    readonly log?: Logger
    readonly onRestart?: () => void
  } = {},
): Promise<TestChain> {
  const folder = options.folder ?? (await mkdtemp(join(tmpdir(), 'affidavit-chain-')))
  const chain = await startAnvil({
    folder,
    port: options.port ?? 0,
    log: options.log ?? recordLog().log,
    ...(options.onRestart ? { onRestart: options.onRestart } : {}),
  })
  const rpc = createRpc({ url: chain.rpcUrl })
  return {
    folder,
    rpc,
    port: Number(new URL(chain.rpcUrl).port),
    rpcUrl: chain.rpcUrl,
    chainId: chain.chainId,
    contract: chain.contract,
    relayerKey: chain.relayerKey,
    get pid() {
      return chain.pid
    },
    stop: () => chain.stop(),
    dispose: async () => {
      await rpc.close()
      await chain.stop()
      await rm(folder, { recursive: true, force: true })
    },
  }
}

export type LogLine = {
  readonly level: 'debug' | 'info' | 'warn' | 'error'
  readonly message: string
  readonly members: Readonly<Record<string, unknown>>
}

/** A logger that keeps its lines. */
export function recordLog(): { readonly log: Logger; readonly lines: readonly LogLine[] } {
  const lines: LogLine[] = []
  const at =
    (level: LogLine['level']) => (members: Readonly<Record<string, unknown>>, message: string) => {
      lines.push({ level, message, members })
    }
  return {
    lines,
    log: { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') },
  }
}

/** EIP-712 typed data of a tree head, written a second time, for ethers. */
export const TREE_HEAD_TYPES = {
  TreeHead: [
    { name: 'size', type: 'uint64' },
    { name: 'root', type: 'bytes32' },
  ],
}

/** The EIP-712 domain of the contract on a chain. */
export function typedDomain(chain: Pick<LocalChain, 'chainId' | 'contract'>) {
  return {
    name: 'Affidavit',
    version: '1',
    chainId: chain.chainId,
    verifyingContract: chain.contract,
  }
}

/** A notary's signature (65 bytes) over a head. */
export async function signHead(
  chain: Pick<LocalChain, 'chainId' | 'contract'>,
  notary: Wallet,
  head: { readonly size: number; readonly root: Uint8Array },
): Promise<Uint8Array> {
  return getBytes(await notary.signTypedData(typedDomain(chain), TREE_HEAD_TYPES, head))
}

/**
 * `count` stored anchors of one notary, from `nonce` on, with growing sizes. A given `signature`
 * replaces all signatures, so that they are wrong.
 */
export async function signAnchors(
  chain: Pick<LocalChain, 'chainId' | 'contract' | 'relayerKey'>,
  options: { readonly count: number; readonly nonce?: number; readonly signature?: Uint8Array },
) {
  const relayer = new Wallet(chain.relayerKey).address.toLowerCase()
  const rows = []
  for (let at = 0; at < options.count; at++) {
    const nonce = (options.nonce ?? 0) + at
    // Ten anchors share a head and its signature, which the contract allows.
    const head = {
      size: 1 + Math.floor(nonce / 10),
      root: new Uint8Array(32).fill(Math.floor(nonce / 10)),
    }
    const signature = options.signature ?? (await headSignature(chain, head))
    const { raw, hash } = signAnchorTransaction({
      ...chain,
      nonce,
      head: { ...head, signature },
      fees: TEST_FEES,
    })
    rows.push({ relayer, nonce, raw, txHash: hash })
  }
  return rows
}

/** The notary of signAnchors. */
export const TEST_NOTARY = new Wallet(`0x${'42'.repeat(32)}`)

const signatures = new Map<string, Uint8Array>()

async function headSignature(
  chain: Pick<LocalChain, 'chainId' | 'contract'>,
  head: { readonly size: number; readonly root: Uint8Array },
): Promise<Uint8Array> {
  const key = `${chain.chainId} ${chain.contract} ${head.size}`
  const signature = signatures.get(key) ?? (await signHead(chain, TEST_NOTARY, head))
  signatures.set(key, signature)
  return signature
}
