import { parseReleaseKey } from '../attestation/release/release-key.ts'
import type { Environment } from './runtime/read-settings.ts'
import { upstreamFaults } from './upstream/settings.ts'

/** Defaults of the two fees, which are compared here. */
export const MAX_FEE_PER_GAS_GWEI = 500
export const MAX_PRIORITY_FEE_GWEI = 2

/** What is wrong with the gateway's variables together; each alone is checked by its field. */
export function findGatewayFaults(given: Environment): readonly string[] {
  const isProduction = given.NODE_ENV === 'production'
  return [
    ...chainFaults(given),
    ...feeFaults(given),
    ...upstreamFaults(given),
    ...releaseFaults(given),
    ...(isProduction ? productionFaults(given) : []),
  ]
}

const REMOTE_CHAIN = ['CHAIN_RPC_URL', 'RELAYER_PRIVATE_KEY', 'CONTRACT_ADDRESS'] as const

function chainFaults(given: Environment): readonly string[] {
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

function releaseFaults(given: Environment): readonly string[] {
  const { ENCLAVE_RELEASES_FILE: file, RELEASE_KEY: keys } = given
  if (file === undefined)
    return keys === undefined ? [] : ['RELEASE_KEY: expected only together with ENCLAVE_RELEASES_FILE']
  if (keys === undefined) return ['RELEASE_KEY: expected together with ENCLAVE_RELEASES_FILE']
  const items = keys.split(',').map((key) => key.trim())
  return items.every(isReleaseKey)
    ? []
    : ['RELEASE_KEY: expected public keys of Ed25519, 64 lower-case hex digits each']
}

function isReleaseKey(text: string): boolean {
  try {
    parseReleaseKey(text)
    return true
  } catch {
    return false
  }
}

/**
 * One fault for each embedded, simulated or demonstration part that would be started, and for what
 * nobody should get unasked.
 */
function productionFaults(given: Environment): readonly string[] {
  const faults: string[] = []
  if (given.DATABASE_URL === undefined)
    faults.push('DATABASE_URL: expected in production, which refuses the embedded database')
  if (REMOTE_CHAIN.every((name) => given[name] === undefined))
    faults.push(`${REMOTE_CHAIN.join(', ')}: expected in production, which refuses the local chain`)
  if (given.ENCLAVE_URL === undefined)
    faults.push(
      'ENCLAVE_URL: expected in production, which refuses an enclave with a simulated security module',
      'ENCLAVE_URL: expected in production, which refuses the demo provider',
    )
  if (given.LOCAL_ENCLAVES !== undefined)
    faults.push('LOCAL_ENCLAVES: unexpected in production, which refuses simulated enclaves')
  if (given.HISTORY_ALL === undefined)
    faults.push(
      "HISTORY_ALL: expected in production: false, and each account sees its own completions; true, and everybody reads everybody's prompts",
    )
  if (given.DEV_API_KEY !== undefined)
    faults.push('DEV_API_KEY: unexpected in production, which refuses a fixed key')
  return faults
}
