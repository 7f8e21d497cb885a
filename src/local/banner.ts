import { join, relative } from 'node:path'
import { KEY_FILE } from '../accounts/open-keys.ts'
import type { AttestedDemo } from './demo/config.ts'

export type GatewayFacts = {
  readonly url: string
  /** Null when metrics are not served. */
  readonly metricsUrl: string | null
  /** Null in production, because production makes no key. */
  readonly apiKey: string | null
  readonly chain: {
    readonly url: string | null
    readonly id: number
    readonly contract: string
    readonly relayer: string
  }
  /** Null when this process started no node. */
  readonly nodeId: string | null
  /** Null when the operator runs the enclaves. */
  readonly demoOrigin: string | null
  /** Null when `demoOrigin` is null. */
  readonly attested: AttestedDemo | null
  readonly rootFile: string | null
  /** The policy that accepts the enclaves (policy.ts). */
  readonly policyFile: string | null
  readonly isDatabaseEmbedded: boolean
}

/** The message to the parent process over the IPC channel when the gateway serves. */
export type GatewayReady = { readonly kind: 'ready' } & GatewayFacts

type ShownConfig = { readonly dataFolder: string; readonly devApiKey: string | null }

/**
 * The text that `npm start` prints when the gateway serves. It shows the API key, so production
 * must not print it.
 */
export function writeBanner(config: ShownConfig, facts: GatewayFacts, startMs: number): string {
  const blocks = [
    [`Affidavit is ready after ${(startMs / 1000).toFixed(1)} s.`],
    listAddresses(config, facts),
    listStandIns(facts),
    listTries(facts),
  ]
  return `\n${blocks
    .filter((block) => block.length > 0)
    .map((block) => block.join('\n'))
    .join('\n\n')}\n\n`
}

/** A row whose value is null is not printed. */
type Row = readonly [name: string, value: string | null]

function listAddresses(
  { dataFolder, devApiKey }: ShownConfig,
  { url, apiKey, chain, policyFile }: GatewayFacts,
): readonly string[] {
  const kept = devApiKey === null ? `kept in ${join(dataFolder, KEY_FILE)}` : 'DEV_API_KEY'
  return columns([
    ['gateway', url],
    ['API key', apiKey && `${apiKey} (${kept})`],
    ['pages', `${reachableUrl(url)}/ in a browser; /console takes the API key`],
    ['chain RPC', `${chain.url ?? 'CHAIN_RPC_URL'} (chain id ${chain.id})`],
    ['contract', `${chain.contract} (relayer ${chain.relayer})`],
    ['data', dataFolder],
    ['policy', policyFile && `${policyFile} (it accepts this enclave)`],
  ])
}

function listStandIns(facts: GatewayFacts): readonly string[] {
  const { isDatabaseEmbedded, chain, rootFile, demoOrigin, attested, nodeId } = facts
  const rows = columns([
    ['database', isDatabaseEmbedded ? 'EMBEDDED: PGlite in the data folder' : null],
    [
      'chain',
      chain.url && 'SIMULATED: a local anvil; every program on this machine can rewrite it',
    ],
    ['enclave', rootFile && 'SIMULATED: a plain process; its attestation proves nothing'],
    ['provider', demoOrigin && `DEMONSTRATION: demo/… at ${demoOrigin}; no model answers there`],
    [
      'TEE',
      attested &&
        `SIMULATED: demo/sealed and demo/unsealed at ${attested.origin}; ` +
          `its evidence, accepted by ${attested.policyFile}, proves nothing`,
    ],
    ['node', nodeId && `DEMONSTRATION: ${nodeId}, an agent for the same demo provider`],
  ])
  if (rows.length === 0) return []
  return ['For development; NODE_ENV=production refuses these parts:', ...rows]
}

function listTries(facts: GatewayFacts): readonly string[] {
  const { url, apiKey, rootFile, demoOrigin, attested, nodeId } = facts
  const base = reachableUrl(url)
  const model = demoOrigin === null ? 'MODEL' : 'demo/echo'
  const key = apiKey ?? 'API_KEY'
  const trust =
    rootFile === null ? '' : ` --any-measurement --root '${relativeIfShorter(rootFile)}'`
  const curl = (path: string, asked = model) => {
    const body = JSON.stringify({ model: asked, messages: [{ role: 'user', content: 'Hello' }] })
    const headers = `-H 'Authorization: Bearer ${key}' -H 'Content-Type: application/json'`
    return `  curl -sS '${base}${path}' ${headers} -d '${body}'`
  }
  return [
    'Ask for a verified completion, then check the newest record of the history:',
    curl('/v1/verified/chat/completions'),
    `  npm run -s affidavit -- verify '${base}/v1/verified/chat/completions?limit=1' --key '${key}'${trust}`,
    ...(attested === null
      ? []
      : [
          'Ask a provider in a simulated TEE, whose TLS key the receipt names:',
          curl('/v1/verified/chat/completions', 'demo/sealed'),
        ]),
    ...(nodeId === null
      ? []
      : ['Ask for a plain completion, which the node answers:', curl('/v1/chat/completions')]),
  ]
}

function columns(rows: readonly Row[]): readonly string[] {
  const shown = rows.filter(([, value]) => value !== null)
  const width = Math.max(...shown.map(([name]) => name.length))
  return shown.map(([name, value]) => `  ${name.padEnd(width)}  ${value}`)
}

function relativeIfShorter(path: string): string {
  const short = relative(process.cwd(), path)
  return short.length < path.length ? short : path
}

/**
 * Replaces the address that means "all interfaces", because clients cannot connect to it on every
 * system.
 */
export function reachableUrl(url: string): string {
  return url.replace('://0.0.0.0:', '://127.0.0.1:').replace('://[::]:', '://[::1]:')
}
