import type { Environment } from '../runtime/read-settings.ts'
import { readGatewaySettings } from './config.ts'
import { CliError, EXIT_CODES } from './faults.ts'
import { type GatewayAccessOptions, hashOf } from './options.ts'

/** The API key for one URL. */
export type GatewayKey = {
  /** If this is null, no key is sent. */
  readonly apiKey: string | null
  /** True if the environment has a key, but the key is for another origin. */
  readonly isWithheld: boolean
  /** Advice for the case that the gateway asks for a key. Null if a key is sent. */
  readonly keyHint: string | null
}

/**
 * Chooses the key to send to `url`. The key from the option is used first. Otherwise the key from
 * the environment is used, but it is sent only to the origin of AFFIDAVIT_URL. A URL may belong to
 * any server. So a command with a URL does not send the environment's key to an unknown server.
 * Throws ConfigurationError for a malformed variable.
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

/**
 * Returns the URL of a completion's evidence bundle, and the key to send. Without a key, the URL
 * returns the public bundle, which has no question and no answer.
 */
export function evidenceSource(
  hash: string,
  options: GatewayAccessOptions,
  environment?: Environment,
): { readonly url: string; readonly key: GatewayKey } {
  const base = (options.url ?? readGatewaySettings(environment).gatewayUrl).replace(/\/+$/, '')
  const key = chooseKey(base, options, environment)
  const path =
    key.apiKey === null
      ? `/v1/evidence/${hashOf(hash)}`
      : `/v1/verified/chat/completions/${hashOf(hash)}/evidence`
  return { url: base + path, key }
}

/**
 * Throws CliError if a command needs a key, but the origin of `--url` differs from the origin of
 * the environment's key.
 */
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
 * The text names the two origins. They may look equal to a user: localhost and 127.0.0.1 are
 * different origins, and two ports are different origins.
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

/** Returns null if the text is not a URL. The code that fetches the URL reports this fault. */
function originOf(url: string): string | null {
  return URL.canParse(url) ? new URL(url).origin : null
}
