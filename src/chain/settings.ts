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
   * JSON-RPC endpoint of the EVM chain. Default: a local anvil. Requires RELAYER_PRIVATE_KEY and
   * CONTRACT_ADDRESS.
   */
  CHAIN_RPC_URL: confidential(url(['http', 'https'])).optional(),
  /**
   * Key of the account that pays for anchors, 0x and 64 hex digits. Only the gateways of one
   * database may use this account.
   */
  RELAYER_PRIVATE_KEY: privateKey.optional(),
  /** Address of the deployed anchor contract, 0x and 40 hex digits. */
  CONTRACT_ADDRESS: form(/^0x[0-9a-fA-F]{40}$/, '0x and 40 hex digits').optional(),
  /**
   * Expected chain id of CHAIN_RPC_URL. Nothing is signed for an endpoint with another id. With
   * this variable, the gateway also starts while the endpoint is unreachable. Default: the id that
   * the endpoint reports.
   */
  CHAIN_ID: integer({ min: 1, max: 999_999_999_999_999 }).optional(),
  /**
   * TCP port of the local chain. Default 8545, the usual port. With 0 a free port is taken and
   * printed.
   */
  CHAIN_PORT: port.default(8545),
  /**
   * Number of blocks that confirm an anchor: its own block and the blocks on top. A confirmed
   * anchor is still watched for reorganisations. Default 12 with CHAIN_RPC_URL, a common choice for
   * Ethereum; 1 on the local chain, which has no reorganisations.
   */
  CONFIRMATIONS: integer({ min: 1, max: 10_000 }).optional(),
  /**
   * How long a log collects commits for one anchor, milliseconds. Default 0: each commit has its
   * own anchor. With 250, for example, completions are stored at once, and callers get their
   * answers when the interval's anchor is signed. This saves gas if an interval has several
   * commits, and delays each answer by at most this time.
   */
  ANCHOR_INTERVAL_MS: integer({ min: 0, max: 10_000 }).default(0),
  /**
   * Maximum fee per gas of an anchor, gwei. Default 500: the fee is never raised later, so it must
   * be enough during price spikes. The chain charges only the current price (EIP-1559).
   */
  MAX_FEE_PER_GAS_GWEI: positiveNumber({ max: 1_000_000 }).default(MAX_FEE_PER_GAS_GWEI),
  /**
   * Tip per gas, gwei. Default 2: enough for a fast inclusion on a busy chain, a few cents per
   * anchor.
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
