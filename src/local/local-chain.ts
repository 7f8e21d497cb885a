import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { DEPLOYMENT } from '../../attestation/contract/artifact.ts'
import { createRpc, type Rpc } from '../../client/rpc.ts'
import { relayerAddress } from '../chain/anchor-transaction.ts'
import { hasCode } from '../chain/chain-reads.ts'
import { type Chain, DEVELOPMENT_CHAIN_ID, relayerWith } from '../chain/open-chain.ts'
import type { Logger } from '../observability/logger.ts'
import { type BackOffBounds, backOffMs } from '../runtime/back-off.ts'
import { pause } from '../runtime/loop.ts'
import { StartFailure } from '../runtime/starting.ts'
import { AnvilFailure, startAnvilProcess } from './anvil-process.ts'
import { type ChainState, type ChainUpkeep, keepUpChain, openChainState } from './chain-state.ts'
import { awaitFreePort } from './free-port.ts'
import type { GuardedProcess } from './guarded-process.ts'

/**
 * The relayer on the local chain: account 8 of the mnemonic that every anvil shows (`test test …
 * junk`). Publicly known and worth nothing. Not account 0, which people use by hand: a stranger's
 * transaction would take the relayer's nonces.
 */
const LOCAL_RELAYER_KEY = '0xdbda1821b80551c9d65939329250298aa3472ba22feea921c0cf5d620ea67b97'
/** Account 9, of which anvil holds the key too. */
const DEPLOYER = '0xa0ee7a142d267c1f36714e4a8f75612f20a79720'

/** Where the contract is on every local chain, also after its state was lost. 0x, lower case. */
const LOCAL_CONTRACT = DEPLOYMENT.address

const RESTART_BACKOFF: BackOffBounds = { minMs: 50, maxMs: 5_000 }
/** The dump of a chain with 100,000 anchors is about 40 MB. */
const ANSWER_BYTES_MAX = 256 * 1024 * 1024
/**
 * A chain of our own is not away, only slow: on a loaded machine a first answer took more than ten
 * seconds.
 */
const ANSWER_TIMEOUT_MS = 60_000

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

type LocalChainOptions = {
  /** Data folder; the chain's state is kept in its `chain/`. */
  readonly folder: string
  /** 0 takes any free one. */
  readonly port: number
  readonly log: Logger
  /** Called each time the chain is back after it had ended. */
  readonly onRestart?: () => void
}

/**
 * Starts a local chain with the contract on it, and starts it again whenever it ends. After a kill
 * it comes back as it was saved last, at most a few seconds earlier (the broadcaster sends what is
 * missing again, and the same transactions get the same hashes). It ends with this process, however
 * that ends.
 *
 * Rejects with StartFailure, whose message names CHAIN_PORT when the port is taken.
 */
export async function startAnvil(options: LocalChainOptions): Promise<LocalChain> {
  const state = await openChainState(join(options.folder, 'chain'))
  for (;;) {
    const chain = new KeptChain({ ...options, state, port: await awaitFreePort(options.port) })
    try {
      await chain.start()
      return chain
    } catch (error) {
      await chain.stop()
      const isPortLost = error instanceof AnvilFailure && error.code === 'port_taken'
      if (isPortLost && options.port === 0) continue
      throw new StartFailure(
        `local chain: ${error instanceof Error ? error.message : String(error)}`,
      )
    }
  }
}

/** What is known of the local chain before it runs, so that the enclave need not wait for it. */
export const LOCAL_DOMAIN = { chainId: DEVELOPMENT_CHAIN_ID, contract: LOCAL_CONTRACT } as const

/** Starts the local chain in the data folder, as startAnvil does, and connects to it. */
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

type Life = { readonly anvil: GuardedProcess; readonly upkeep: ChainUpkeep }

/** One anvil after another, on one port and one state. */
class KeptChain implements LocalChain {
  readonly rpcUrl: string
  readonly chainId = DEVELOPMENT_CHAIN_ID
  readonly contract = LOCAL_CONTRACT
  readonly relayerKey = LOCAL_RELAYER_KEY
  readonly #options: LocalChainOptions & { readonly state: ChainState }
  readonly #rpc: Rpc
  readonly #stopping = new AbortController()
  #life: Life | null = null
  #keeping: Promise<void> = Promise.resolve()

  constructor(options: LocalChainOptions & { readonly state: ChainState }) {
    this.#options = options
    this.rpcUrl = `http://127.0.0.1:${options.port}`
    this.#rpc = createRpc({
      url: this.rpcUrl,
      timeoutMs: ANSWER_TIMEOUT_MS,
      answerBytesMax: ANSWER_BYTES_MAX,
    })
  }

  get pid(): number | null {
    return this.#life?.anvil.pid ?? null
  }

  async start(): Promise<void> {
    const life = await this.#launch()
    this.#life = life
    this.#keeping = this.#keepRunning(life)
  }

  async stop(): Promise<void> {
    this.#stopping.abort()
    await this.#keeping
    await this.#life?.upkeep.stop({ save: true })
    await this.#life?.anvil.stop()
    this.#life = null
    await this.#rpc.close()
  }

  async #keepRunning(first: Life): Promise<void> {
    const { log, onRestart } = this.#options
    const stop = this.#stopping.signal
    let life = first
    for (;;) {
      await Promise.race([life.anvil.exited, aborted(stop)])
      if (stop.aborted) return
      this.#life = null
      log.error({ process: 'anvil' }, 'local chain ended, starting it again')
      await life.upkeep.stop({ save: false })
      const next = await this.#relaunch()
      if (next === null) return
      life = next
      this.#life = next
      log.info({ process: 'anvil', pid: next.anvil.pid }, 'local chain is back')
      onRestart?.()
    }
  }

  /** Tries until it succeeds; null when the chain is to be stopped. */
  async #relaunch(): Promise<Life | null> {
    const stop = this.#stopping.signal
    for (let failures = 1; !stop.aborted; failures += 1) {
      try {
        return await this.#launch()
      } catch (error) {
        const pauseMs = backOffMs(failures, RESTART_BACKOFF, { jitter: 'none' })
        this.#options.log.error(
          { err: error, pause_ms: pauseMs },
          'local chain could not be started again',
        )
        await pause(pauseMs, stop)
      }
    }
    return null
  }

  async #launch(): Promise<Life> {
    const { state, log } = this.#options
    const anvil = await this.#startWithState()
    try {
      await deployContract(this.#rpc)
      await state.save(this.#rpc)
    } catch (error) {
      await anvil.stop()
      throw error
    }
    const relayer = relayerAddress(LOCAL_RELAYER_KEY)
    return { anvil, upkeep: keepUpChain({ rpc: this.#rpc, state, relayer, log }) }
  }

  async #startWithState(): Promise<GuardedProcess> {
    const { state, log, port } = this.#options
    const stateFile = await state.find()
    try {
      return await startAnvilProcess({ port, rpc: this.#rpc, stateFile })
    } catch (error) {
      const isRefused =
        error instanceof AnvilFailure && error.code === 'ended' && stateFile !== null
      if (!isRefused) throw error
      const file = await state.setAside()
      log.error(
        { err: error, file },
        'local chain refused its state and starts again without it; anchors are sent again',
      )
      return await startAnvilProcess({ port, rpc: this.#rpc, stateFile: null })
    }
  }
}

function aborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve()
    else signal.addEventListener('abort', () => resolve(), { once: true })
  })
}

const MINED_POLL_MS = 5
const MINED_TIMEOUT_MS = 60_000

/**
 * Deploys the contract when it is not there. Throws RpcError, or Error when no contract appears at
 * LOCAL_CONTRACT in time.
 */
async function deployContract(rpc: Rpc): Promise<void> {
  if (await hasCode(rpc, LOCAL_CONTRACT)) return
  const { proxy: to, data } = DEPLOYMENT
  await rpc.call('eth_sendTransaction', [{ from: DEPLOYER, to, data }])
  const until = performance.now() + MINED_TIMEOUT_MS
  while (!(await hasCode(rpc, LOCAL_CONTRACT))) {
    if (performance.now() > until)
      throw new Error(`the contract is not at ${LOCAL_CONTRACT} after its deployment`)
    await sleep(MINED_POLL_MS)
  }
}
