import type { Environment } from '../runtime/read-settings.ts'
import { readGatewaySettings } from './config.ts'
import { CliError, EXIT_CODES } from './faults.ts'
import { type GatewayAccessOptions, hashOf } from './options.ts'

export type GatewayKey = {
  /** Null: no key is sent. */
  readonly apiKey: string | null
  /** True if the environment has a key, but the key is for another origin. */
  readonly isWithheld: boolean
  /** Advice if the gateway asks for a key. Null if a key is sent. */
  readonly keyHint: string | null
}

/**
 * Chooses the key to send to `url`: the option's key, or else the environment's key. The
 * environment's key is sent only to the origin of AFFIDAVIT_URL, because `url` can belong to any
 * server. Throws ConfigurationError for a malformed variable.
 */
export function chooseKey(
  url: string,
  options: { readonly key?: string },
  environment?: Environment,
): GatewayKey {
  if (options.key !== undefined) return { apiKey: options.key, isWithheld: false, keyHint: null }
  const settings = readGatewaySettings(environment)
  const origin = originOf(url)
  if (settings.apiKey === null || origin === null)
    return { apiKey: null, isWithheld: false, keyHint: NO_KEY_HINT }
  if (origin === originOf(settings.gatewayUrl))
    return { apiKey: settings.apiKey, isWithheld: false, keyHint: null }
  return { apiKey: null, isWithheld: true, keyHint: explainWithheld(origin, settings) }
}

/** Without a key, the bundle has no question and no answer. */
export function evidenceSource(
  hash: string,
  options: GatewayAccessOptions,
  environment?: Environment,
): { readonly url: string; readonly access: GatewayKey } {
  const base = (options.url ?? readGatewaySettings(environment).gatewayUrl).replace(/\/+$/, '')
  const key = chooseKey(base, options, environment)
  const path = `/${hashOf(hash)}/evidence`
  if (key.apiKey === null) return { url: `${base}/v1/evidence/${hashOf(hash)}`, access: key }
  return { url: `${base}/v1/verified/records${path}`, access: key }
}

/** Throws CliError if the environment's key is for another origin than `--url`. */
export function checkKeyOrigin(
  options: { readonly url?: string; readonly key?: string },
  environment?: Environment,
): void {
  if (options.url === undefined || options.key !== undefined) return
  const { isWithheld, keyHint } = chooseKey(options.url, options, environment)
  if (isWithheld && keyHint !== null) throw new CliError(keyHint, EXIT_CODES.usage)
}

const NO_KEY_HINT = '--key, or AFFIDAVIT_API_KEY for AFFIDAVIT_URL'

/**
 * Names the two origins, which may look equal: localhost and 127.0.0.1 differ, and so do two ports.
 */
function explainWithheld(
  origin: string,
  { gatewayUrl, isDefaultUrl }: { readonly gatewayUrl: string; readonly isDefaultUrl: boolean },
): string {
  const source = isDefaultUrl ? 'the default of AFFIDAVIT_URL' : 'AFFIDAVIT_URL'
  return (
    `AFFIDAVIT_API_KEY is for ${originOf(gatewayUrl)}, ${source}, and not for ${origin}: ` +
    'give --key to send one there, or set AFFIDAVIT_URL to it'
  )
}

/** Returns null if the text is not a URL. The fetch reports this fault. */
function originOf(url: string): string | null {
  return URL.canParse(url) ? new URL(url).origin : null
}
