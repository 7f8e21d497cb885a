import { type Command, InvalidArgumentError } from 'commander'
import { readGatewaySettings } from './config.ts'
import { isUrl } from './read-source.ts'

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
