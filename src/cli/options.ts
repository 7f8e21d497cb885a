import { type Command, InvalidArgumentError } from 'commander'
import { readGatewaySettings } from './config.ts'
import { isUrl } from './files.ts'

/** Which gateway to ask, and as whom, as commander gives it. */
export type GatewayOptions = { readonly url?: string; readonly key?: string }

/** Adds the options that say where evidence is fetched from. */
export function addGatewayOptions(command: Command): Command {
  return command
    .option(
      '--url <url>',
      "gateway's base URL (default: AFFIDAVIT_URL, or http://127.0.0.1:3000)",
      parseBaseUrl,
    )
    .option('--key <key>', 'API key (better: in AFFIDAVIT_API_KEY, which goes to AFFIDAVIT_URL alone)')
}

/** Whether a source is a completion's hash: 64 hex digits, with or without 0x. A file of such a name needs `./`. */
export function isHash(source: string): boolean {
  return /^(0x)?[0-9a-fA-F]{64}$/.test(source)
}

/** Gives the hash that isHash found, as records have it: lower case, without 0x. */
export function hashOf(source: string): string {
  return source.toLowerCase().replace(/^0x/, '')
}

/** Gives the URL of a completion's evidence bundle. */
export function evidenceUrl(hash: string, options: GatewayOptions): string {
  const base = options.url ?? readGatewaySettings().gatewayUrl
  return `${base.replace(/\/+$/, '')}/v1/verified/chat/completions/${hashOf(hash)}/evidence`
}

/** Gives the base URL of a gateway as it was written, without a query. */
export function parseBaseUrl(text: string): string {
  if (!isUrl(text) || !URL.canParse(text)) throw new InvalidArgumentError('expected an http(s) URL')
  const { search, hash } = new URL(text)
  if (search !== '' || hash !== '') throw new InvalidArgumentError('expected a base URL, without ? and #')
  return text
}

/** Longest that anything may be waited for: an hour, and far within what a timer can hold. */
const TIMEOUT_SECONDS_MAX = 3600

/** Gives the seconds of a `--timeout` option. Throws InvalidArgumentError. */
export function parseSeconds(text: string): number {
  const seconds = /^\d{1,5}$/.test(text) ? Number(text) : 0
  if (seconds >= 1 && seconds <= TIMEOUT_SECONDS_MAX) return seconds
  throw new InvalidArgumentError(`expected a whole number of seconds from 1 to ${TIMEOUT_SECONDS_MAX}`)
}

/** For people: where `npm start` keeps the certificate of the root that its simulated security module uses. */
export const ROOT_HINT =
  'A development enclave? Its root is in DATA_DIR/nsm/root.crt.pem (DATA_DIR is .affidavit unless it is set): --root FILE'

/**
 * Gives the hint as a line when one of these details of failed checks tells root_untrusted, else nothing. They may hold
 * text from outside, which can at most bring the hint about. Reports for programs go without: they have the code.
 */
export function hintAtRoot(details: readonly string[]): string {
  return details.some((detail) => /(^|: |; )root_untrusted: /.test(detail)) ? `${ROOT_HINT}\n` : ''
}
