import { createServer } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { relayerAddress } from '../chain/anchor-transaction.ts'
import { createRpc, type Rpc } from '../chain/rpc.ts'
import type { Logger } from '../logger.ts'
import { findAnvilBinary } from './anvil-binary.ts'
import { type ChainState, openChainState } from './chain-state.ts'
import { type ChainUpkeep, keepUpChain } from './chain-upkeep.ts'
import { deployContract, LOCAL_CONTRACT } from './contract-deployment.ts'
import { type GuardedProcess, spawnGuarded } from './guarded-process.ts'
import { StartFailure } from './supervised-process.ts'

/** Chain id of the local chain: anvil's own default, which wallets and tools know as a development chain. */
export const LOCAL_CHAIN_ID = 31_337

/**
 * The relayer on the local chain: account 8 of the mnemonic that every anvil shows (`test test … junk`). Publicly known
 * and worth nothing. Not account 0, which people use by hand: a stranger's transaction would take the relayer's nonces.
 */
export const LOCAL_RELAYER_KEY = '0xdbda1821b80551c9d65939329250298aa3472ba22feea921c0cf5d620ea67b97'
/** Account 9, of which anvil holds the key too. */
const DEPLOYER = '0xa0ee7a142d267c1f36714e4a8f75612f20a79720'

/** A leftover anvil of a gateway that was killed is gone this soon (guard.ts), so its port is waited for. */
export const PORT_WAIT_MS = 3_000
const START_TIMEOUT_MS = 15_000
const READY_POLL_MS = 10
const RESTART_PAUSE_MIN_MS = 50
const RESTART_PAUSE_MAX_MS = 5_000
/** The dump of a chain with 100,000 anchors is about 40 MB. */
const ANSWER_BYTES_MAX = 256 * 1024 * 1024

export type LocalChain = {
  readonly rpcUrl: string
  readonly chainId: number
  /** The anchor contract's address, 0x, lower case. */
  readonly contract: string
  readonly relayerKey: string
  /** anvil's own pid; another one after it was killed and came back; null in between. */
  readonly pid: number | null
  /** Saves the state and ends the chain. */
  stop(): Promise<void>
}

/**
 * Starts a local chain with the contract on it, and starts it again whenever it ends. Its state is kept in
 * `folder`/chain; after a kill it comes back as it was saved last, at most a few seconds earlier (the broadcaster sends what is missing
 * again, and the same transactions get the same hashes). It ends with this process, however that ends.
 *
 * `port` 0 takes any free one. Rejects with StartFailure, whose message names CHAIN_PORT when the port is taken.
 */
export async function startAnvil(options: {
  readonly folder: string
  readonly port: number
  readonly log: Logger
  /** Called each time the chain is back after it had ended. */
  readonly onRestart?: () => void
}): Promise<LocalChain> {
  const { log } = options
  const state = await openChainState(join(options.folder, 'chain'))
  const port = await takePort(options.port)
  const rpcUrl = `http://127.0.0.1:${port}`
  const rpc = createRpc({ url: rpcUrl, answerBytesMax: ANSWER_BYTES_MAX })
  const relayer = relayerAddress(LOCAL_RELAYER_KEY)
  const stopping = new AbortController()

  const launch = async (): Promise<Life> => {
    const anvil = await startWithState({ port, rpc, state, log })
    try {
      await deployContract(rpc, DEPLOYER)
      await state.save(rpc)
    } catch (error) {
      await anvil.stop()
      throw error
    }
    return { anvil, upkeep: keepUpChain({ rpc, state, relayer, log }) }
  }

  let life: Life | null = await launch().catch(async (error) => {
    await rpc.close()
    throw error instanceof StartFailure ? error : new StartFailure(`local chain: ${describe(error)}`)
  })
  const keeping = keepRunning()

  async function keepRunning(): Promise<void> {
    let pauseMs = RESTART_PAUSE_MIN_MS
    while (!stopping.signal.aborted) {
      if (life !== null) {
        await Promise.race([life.anvil.exited, aborted(stopping.signal)])
        if (stopping.signal.aborted) return
        await life.upkeep.stop({ save: false })
        life = null
        log.error({ process: 'anvil' }, 'local chain ended, starting it again')
      }
      try {
        life = await launch()
        pauseMs = RESTART_PAUSE_MIN_MS
        log.info({ pid: life.anvil.pid }, 'local chain is back')
        options.onRestart?.()
      } catch (error) {
        log.error({ err: error, pause_ms: pauseMs }, 'local chain could not be started again')
        await sleep(pauseMs, undefined, { signal: stopping.signal }).catch(() => undefined)
        pauseMs = Math.min(pauseMs * 2, RESTART_PAUSE_MAX_MS)
      }
    }
  }

  return {
    rpcUrl,
    chainId: LOCAL_CHAIN_ID,
    contract: LOCAL_CONTRACT,
    relayerKey: LOCAL_RELAYER_KEY,
    get pid() {
      return life?.anvil.pid ?? null
    },
    stop: async () => {
      stopping.abort()
      await keeping
      await life?.upkeep.stop({ save: true })
      await life?.anvil.stop()
      life = null
      await rpc.close()
    },
  }
}

type Life = { readonly anvil: GuardedProcess; readonly upkeep: ChainUpkeep }

type Launch = { readonly port: number; readonly rpc: Rpc; readonly state: ChainState; readonly log: Logger }

async function startWithState({ port, rpc, state, log }: Launch): Promise<GuardedProcess> {
  const file = await state.find()
  try {
    return await startOnce(port, rpc, file)
  } catch (error) {
    if (file === null || !isRefusedState(error)) throw error
    const aside = await state.setAside()
    log.error(
      { err: error, file: aside },
      'local chain refused its state and starts anew; anchors are sent again',
    )
    return await startOnce(port, rpc, null)
  }
}

async function startOnce(port: number, rpc: Rpc, stateFile: string | null): Promise<GuardedProcess> {
  const anvil = await spawnGuarded({
    command: findAnvilBinary(process.platform, process.arch),
    arguments: anvilArguments(port, stateFile),
    environment: {},
    output: 'capture',
    graceMs: 0,
  })
  let hasEnded = false
  void anvil.exited.then(() => {
    hasEnded = true
  })
  const until = performance.now() + START_TIMEOUT_MS
  while (!hasEnded) {
    if ((await rpc.call('eth_chainId', []).catch(() => null)) !== null) return anvil
    if (performance.now() > until) {
      await anvil.stop()
      throw new StartFailure(`local chain: not ready within ${START_TIMEOUT_MS} ms`)
    }
    await sleep(READY_POLL_MS)
  }
  throw new AnvilEnded(anvil.outputTail())
}

function anvilArguments(port: number, stateFile: string | null): readonly string[] {
  return [
    ...['--host', '127.0.0.1', '--port', String(port), '--chain-id', String(LOCAL_CHAIN_ID)],
    // No page in a browser may talk to it, and no line per call is written.
    ...['--no-cors', '--quiet'],
    // States of old blocks are not needed and cost memory or disk; transactions and receipts are kept, all of them.
    ...['--prune-history', '64'],
    // Ether for 10^9 anchors at any price.
    ...['--balance', '1000000000'],
    ...(stateFile === null ? [] : ['--load-state', stateFile]),
  ]
}

/** anvil ended before it answered; the message is what it said. */
class AnvilEnded extends Error {
  override readonly name = 'AnvilEnded'
}

function isRefusedState(error: unknown): boolean {
  return error instanceof AnvilEnded && !/address already in use/i.test(error.message)
}

/** Gives the port once it is free, or a free one for 0. */
async function takePort(port: number): Promise<number> {
  const until = performance.now() + PORT_WAIT_MS
  for (;;) {
    const bound = await tryPort(port)
    if (bound.kind === 'free') return bound.port
    if (bound.code !== 'EADDRINUSE') {
      throw new StartFailure(`local chain: CHAIN_PORT ${port} cannot be used (${bound.code})`)
    }
    if (performance.now() > until) {
      throw new StartFailure(
        `local chain: CHAIN_PORT ${port} is in use by another program; end it, or set CHAIN_PORT to another port (0 takes a free one)`,
      )
    }
    await sleep(50)
  }
}

type Bound =
  | { readonly kind: 'free'; readonly port: number }
  | { readonly kind: 'refused'; readonly code: string }

function tryPort(port: number): Promise<Bound> {
  return new Promise((resolve) => {
    const server = createServer()
    server.once('error', (error: NodeJS.ErrnoException) => {
      resolve({ kind: 'refused', code: error.code ?? 'unknown' })
    })
    server.listen({ port, host: '127.0.0.1', exclusive: true }, () => {
      const address = server.address()
      const bound = typeof address === 'object' && address !== null ? address.port : port
      server.close(() => resolve({ kind: 'free', port: bound }))
    })
  })
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve()
    else signal.addEventListener('abort', () => resolve(), { once: true })
  })
}

function describe(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
