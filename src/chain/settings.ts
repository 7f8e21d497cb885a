import type { z } from 'zod'
import {
  confidential,
  form,
  integer,
  port,
  positiveNumber,
  privateKey,
  url,
} from '../runtime/fields.ts'
import type { Environment } from '../runtime/read-settings.ts'
import type { Fees } from './sign-anchor.ts'

const MAX_FEE_PER_GAS_GWEI = 500
const MAX_PRIORITY_FEE_GWEI = 2

export const CHAIN_FIELDS = {
  /**
   * JSON-RPC endpoint of the EVM chain. Default: a local anvil. Needs the two variables after it.
   */
  CHAIN_RPC_URL: confidential(url(['http', 'https'])).optional(),
  /**
   * Key of the account that pays for anchors, 0x and 64 hex digits. Used by the gateways of one
   * database alone.
   */
  RELAYER_PRIVATE_KEY: privateKey.optional(),
  /** Address of the deployed anchor contract, 0x and 40 hex digits. */
  CONTRACT_ADDRESS: form(/^0x[0-9a-fA-F]{40}$/, '0x and 40 hex digits').optional(),
  /**
   * Chain id that CHAIN_RPC_URL must have, so that a wrong endpoint is found before anything is
   * signed for it. Default: the id that the endpoint says; with it, the gateway also starts while
   * the endpoint cannot be reached.
   */
  CHAIN_ID: integer({ min: 1, max: 999_999_999_999_999 }).optional(),
  /**
   * TCP port of the local chain. Default 8545, where tools look for one; 0 takes any free one,
   * which is printed.
   */
  CHAIN_PORT: port.default(8545),
  /**
   * Blocks on top of an anchor's after which it is no longer expected to be reorganised away (it is
   * watched even so). Default 12 with CHAIN_RPC_URL, a common choice for Ethereum; 1 on the local
   * chain, which has no reorganisations.
   */
  CONFIRMATIONS: integer({ min: 1, max: 10_000 }).optional(),
  /**
   * How long a log gathers commits for one anchor, milliseconds. Default 0: each commit has its
   * own. With 250, say, completions are stored as they come, and callers are answered when the one
   * anchor of their interval is signed: it saves gas where there are several within it, and costs
   * each of them that time at most.
   */
  ANCHOR_INTERVAL_MS: integer({ min: 0, max: 10_000 }).default(0),
  /**
   * Highest fee per gas an anchor may ever pay, gwei. Default 500: an anchor is never replaced, so
   * its cap must outlast price spikes; the chain charges the going price only (EIP-1559).
   */
  MAX_FEE_PER_GAS_GWEI: positiveNumber({ max: 1_000_000 }).default(MAX_FEE_PER_GAS_GWEI),
  /**
   * Tip per gas, gwei. Default 2: enough to be taken soon on a busy chain, a few cents per anchor.
   */
  MAX_PRIORITY_FEE_GWEI: positiveNumber({ max: 1_000_000 }).default(MAX_PRIORITY_FEE_GWEI),
}

type Settings = z.output<z.ZodObject<typeof CHAIN_FIELDS>>

export type RemoteChainConfig = {
  readonly kind: 'remote'
  readonly rpcUrl: string
  /** 0x, lower case. */
  readonly relayerKey: string
  /** 0x, lower case. */
  readonly contract: string
  readonly chainId: number | null
}

export type ChainConfig = { readonly kind: 'local'; readonly port: number } | RemoteChainConfig

export function anchoringOf(settings: Settings): {
  readonly chain: ChainConfig
  readonly fees: Fees
  readonly confirmations: number
  readonly anchorIntervalMs: number
} {
  return {
    chain: chainOf(settings),
    fees: {
      maxFeePerGasWei: gweiToWei(settings.MAX_FEE_PER_GAS_GWEI),
      maxPriorityFeePerGasWei: gweiToWei(settings.MAX_PRIORITY_FEE_GWEI),
    },
    anchorIntervalMs: settings.ANCHOR_INTERVAL_MS,
    confirmations: settings.CONFIRMATIONS ?? (settings.CHAIN_RPC_URL === undefined ? 1 : 12),
  }
}

function chainOf(settings: Settings): ChainConfig {
  const {
    CHAIN_RPC_URL: rpcUrl,
    RELAYER_PRIVATE_KEY: relayerKey,
    CONTRACT_ADDRESS: contract,
  } = settings
  if (rpcUrl === undefined || relayerKey === undefined || contract === undefined)
    return { kind: 'local', port: settings.CHAIN_PORT }
  return {
    kind: 'remote',
    rpcUrl,
    relayerKey,
    contract: contract.toLowerCase(),
    chainId: settings.CHAIN_ID ?? null,
  }
}

function gweiToWei(gwei: number): bigint {
  return BigInt(Math.round(gwei * 1e9))
}

/** An operator's chain needs all of these variables. */
export const REMOTE_CHAIN = ['CHAIN_RPC_URL', 'RELAYER_PRIVATE_KEY', 'CONTRACT_ADDRESS'] as const

export function chainFaults(given: Environment): readonly string[] {
  return [...remoteFaults(given), ...feeFaults(given)]
}

function remoteFaults(given: Environment): readonly string[] {
  const missing = REMOTE_CHAIN.filter((name) => given[name] === undefined)
  const present = REMOTE_CHAIN.filter((name) => given[name] !== undefined)
  if (present.length > 0)
    return missing.map((name) => `${name}: expected together with ${present.join(' and ')}`)
  return given.CHAIN_ID === undefined
    ? []
    : [`CHAIN_ID: expected only together with ${REMOTE_CHAIN.join(', ')}`]
}

function feeFaults(given: Environment): readonly string[] {
  const cap = Number(given.MAX_FEE_PER_GAS_GWEI ?? MAX_FEE_PER_GAS_GWEI)
  const tip = Number(given.MAX_PRIORITY_FEE_GWEI ?? MAX_PRIORITY_FEE_GWEI)
  return tip > cap ? [`MAX_PRIORITY_FEE_GWEI: expected at most MAX_FEE_PER_GAS_GWEI, ${cap}`] : []
}
