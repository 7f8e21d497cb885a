import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { DEPLOYMENT } from '#attestation/contract/artifact.ts'
import { createRpc, type Rpc } from '#client/rpc.ts'
import { hasCode } from '../chain/chain-reads.ts'
import { type Chain, DEVELOPMENT_CHAIN_ID, relayerWith } from '../chain/open-chain.ts'
import { relayerAddress } from '../chain/sign-anchor.ts'
import type { Logger } from '../observability/logger.ts'
import type { BackOffBounds } from '../runtime/back-off.ts'
import { StartFailure } from '../runtime/starting.ts'
import { AnvilFailure, startAnvilProcess } from './anvil-process.ts'
import { type ChainState, keepUpChain, openChainState } from './chain-state.ts'
import { awaitFreePort } from './free-port.ts'
import type { GuardedProcess } from './guarded-process.ts'
import { keepRunning } from './keep-running.ts'

/**
 * Account 8 of anvil's mnemonic (`test test … junk`). The key is public and protects nothing. The
 * relayer does not use account 0, because people send transactions from account 0 by hand and use
 * up its nonces.
 */
const LOCAL_RELAYER_KEY = '0xdbda1821b80551c9d65939329250298aa3472ba22feea921c0cf5d620ea67b97'
/** Account 9, whose key anvil has. */
const DEPLOYER = '0xa0ee7a142d267c1f36714e4a8f75612f20a79720'

const RESTART_BACKOFF: BackOffBounds = { minMs: 50, maxMs: 5_000 }
/** The dump of a chain with 100,000 anchors is about 40 MB. */
const ANSWER_BYTES_MAX = 256 * 1024 * 1024
/** On a busy machine, anvil once needed more than ten seconds for its first answer. */
const ANSWER_TIMEOUT_MS = 60_000

export type LocalChain = {
  readonly rpcUrl: string
  readonly chainId: number
  /** 0x, lower case. */
  readonly contract: string
  readonly relayerKey: string
  /** The pid of anvil itself, which changes at a restart. Null while anvil does not run. */
  readonly pid: number | null
  /** Saves the state and ends the chain. */
  stop(): Promise<void>
}

type LocalChainOptions = {
  /** The subfolder `chain/` has the chain's state. */
  readonly folder: string
  /** 0: a free port is chosen. */
  readonly port: number
  readonly log: Logger
  /** Called each time the chain runs again after its end. */
  readonly onRestart?: () => void
}

/**
 * Starts a local chain with the contract, and starts it again each time it ends. After a kill, the
 * chain continues from a state that is at most a few seconds old; the broadcaster then sends the
 * missing transactions again. The chain ends with this process. Rejects with StartFailure, which
 * names CHAIN_PORT when the port is taken.
 */
export async function startAnvil(options: LocalChainOptions): Promise<LocalChain> {
  const state = await openChainState(join(options.folder, 'chain'))
  for (;;) {
    const port = await awaitFreePort(options.port)
    try {
      return await keepChain({ ...options, port, state })
    } catch (error) {
      const isPortLost = error instanceof AnvilFailure && error.code === 'port_taken'
      if (isPortLost && options.port === 0) continue
      throw new StartFailure(
        `local chain: ${error instanceof Error ? error.message : String(error)}`,
      )
    }
  }
}

/**
 * Known before the chain runs, so enclaves need not wait. The contract keeps its address even if
 * the chain's state is lost.
 */
export const LOCAL_DOMAIN = {
  chainId: DEVELOPMENT_CHAIN_ID,
  contract: DEPLOYMENT.address,
} as const

export async function startLocalChain(options: LocalChainOptions): Promise<Chain> {
  const anvil = await startAnvil(options)
  const rpc = createRpc({ url: anvil.rpcUrl })
  return {
    rpc,
    publicUrl: anvil.rpcUrl,
    ...LOCAL_DOMAIN,
    relayer: relayerWith(LOCAL_RELAYER_KEY),
    stop: async () => {
      await rpc.close()
      await anvil.stop()
    },
  }
}

type KeptOptions = LocalChainOptions & { readonly state: ChainState }

async function keepChain(options: KeptOptions): Promise<LocalChain> {
  const { port, log, onRestart } = options
  const rpcUrl = `http://127.0.0.1:${port}`
  const rpc = createRpc({
    url: rpcUrl,
    timeoutMs: ANSWER_TIMEOUT_MS,
    answerBytesMax: ANSWER_BYTES_MAX,
  })
  async function start(last: Life | null): Promise<Life> {
    const life = await launch(options, rpc)
    if (last !== null) {
      log.info({ process: 'anvil', pid: life.pid }, 'local chain is back')
      onRestart?.()
    }
    return life
  }
  try {
    const keeper = await keepRunning({ name: 'anvil', backOff: RESTART_BACKOFF, start }, log)
    return {
      rpcUrl,
      ...LOCAL_DOMAIN,
      relayerKey: LOCAL_RELAYER_KEY,
      get pid() {
        return keeper.current()?.pid ?? null
      },
      stop: () => keeper.stop().finally(() => rpc.close()),
    }
  } catch (error) {
    await rpc.close()
    throw error
  }
}

type Life = { readonly pid: number; readonly ended: Promise<void>; stop(): Promise<void> }

async function launch(options: KeptOptions, rpc: Rpc): Promise<Life> {
  const { state, log } = options
  const anvil = await startWithState(options, rpc)
  try {
    await deployContract(rpc)
    await state.save(rpc)
  } catch (error) {
    await anvil.stop()
    throw error
  }
  const upkeep = keepUpChain({ rpc, state, relayer: relayerAddress(LOCAL_RELAYER_KEY), log })
  return {
    pid: anvil.ready.pid,
    ended: anvil.ended.then(() => upkeep.stop({ save: false })),
    stop: async () => {
      await upkeep.stop({ save: true })
      await anvil.stop()
    },
  }
}

async function startWithState(
  { state, log, port }: KeptOptions,
  rpc: Rpc,
): Promise<GuardedProcess> {
  const stateFile = await state.find()
  try {
    return await startAnvilProcess({ port, rpc, stateFile, log })
  } catch (error) {
    if (!(error instanceof AnvilFailure && error.code === 'ended') || stateFile === null)
      throw error
    log.error(
      { err: error, file: await state.setAside() },
      'local chain refused its state and starts again without it; anchors are sent again',
    )
    return await startAnvilProcess({ port, rpc, stateFile: null, log })
  }
}

const MINED_POLL_MS = 5
const MINED_TIMEOUT_MS = 60_000

/** Throws Error when the contract is not at its address in time. */
async function deployContract(rpc: Rpc): Promise<void> {
  const { address, proxy: to, data } = DEPLOYMENT
  if (await hasCode(rpc, address)) return
  await rpc.call('eth_sendTransaction', [{ from: DEPLOYER, to, data }])
  const until = performance.now() + MINED_TIMEOUT_MS
  while (!(await hasCode(rpc, address))) {
    if (performance.now() > until)
      throw new Error(`the contract is not at ${address} after its deployment`)
    await sleep(MINED_POLL_MS)
  }
}
