import { join, relative } from 'node:path'
import type { GatewayConfig } from '../config.ts'
import { KEY_FILE } from './development-key.ts'
import type { GatewayFacts } from './gateway-facts.ts'
import { reachableUrl } from './reachable-url.ts'

/**
 * Gives what `npm start` prints once it serves: where, with which key, which parts are not the real thing, and lines
 * to try that work as they stand. Not for production: it shows the key.
 */
export function writeBanner(config: GatewayConfig, facts: GatewayFacts, startMs: number): string {
  const blocks = [
    [`Affidavit is ready after ${(startMs / 1000).toFixed(1)} s.`],
    columns(listAddresses(config, facts)),
    listStandIns(facts),
    listTries(facts),
  ]
  return `\n${blocks
    .filter((block) => block.length > 0)
    .map((block) => block.join('\n'))
    .join('\n\n')}\n\n`
}

type Row = readonly [string, string]

function listAddresses(config: GatewayConfig, { url, apiKey, chain }: GatewayFacts): readonly Row[] {
  const kept =
    config.devApiKey === null ? ` (kept in ${join(config.dataFolder, KEY_FILE)})` : ' (DEV_API_KEY)'
  return [
    ['gateway', url],
    ...(apiKey === null ? [] : [['API key', `${apiKey}${kept}`] as const]),
    ['chain RPC', `${chain.url ?? 'CHAIN_RPC_URL'} (chain id ${chain.id})`],
    ['contract', `${chain.contract} (relayer ${chain.relayer})`],
    ['data', config.dataFolder],
  ]
}

function listStandIns({
  isDatabaseEmbedded,
  chain,
  rootFile,
  demoOrigin,
  nodeId,
}: GatewayFacts): readonly string[] {
  const standIns: readonly (Row | null)[] = [
    isDatabaseEmbedded ? ['database', 'EMBEDDED: PGlite in the data folder'] : null,
    chain.url === null
      ? null
      : ['chain', 'SIMULATED: a local anvil, which anybody on this machine can rewrite'],
    rootFile === null ? null : ['enclave', 'SIMULATED: a plain process, whose attestation proves nothing'],
    demoOrigin === null
      ? null
      : ['provider', `DEMONSTRATION: demo/… at ${demoOrigin}; no model answers there`],
    nodeId === null ? null : ['node', `DEMONSTRATION: ${nodeId}, an agent in front of the same`],
  ]
  const rows = standIns.filter((row) => row !== null)
  if (rows.length === 0) return []
  return ['For development; NODE_ENV=production refuses these parts:', ...columns(rows)]
}

function listTries({ url, apiKey, rootFile, demoOrigin, nodeId }: GatewayFacts): readonly string[] {
  const base = reachableUrl(url)
  const model = demoOrigin === null ? 'MODEL' : 'demo/echo'
  const body = JSON.stringify({ model, messages: [{ role: 'user', content: 'Hello' }] })
  const key = apiKey ?? 'API_KEY'
  const trust = rootFile === null ? '' : ` --any-measurement --root '${relativeIfShorter(rootFile)}'`
  const curl = (path: string) =>
    `  curl -sS '${base}${path}' -H 'Authorization: Bearer ${key}' -H 'Content-Type: application/json' -d '${body}'`
  return [
    'Ask for a verified completion, then check the newest record of the history:',
    curl('/v1/verified/chat/completions'),
    `  npm run -s affidavit -- verify '${base}/v1/verified/chat/completions?limit=1' --key '${key}'${trust}`,
    ...(nodeId === null
      ? []
      : ['Ask for a plain one, which the node answers:', curl('/v1/chat/completions')]),
  ]
}

function columns(rows: readonly Row[]): readonly string[] {
  const width = Math.max(...rows.map(([name]) => name.length))
  return rows.map(([name, value]) => `  ${name.padEnd(width)}  ${value}`)
}

function relativeIfShorter(path: string): string {
  const short = relative(process.cwd(), path)
  return short.length < path.length ? short : path
}
