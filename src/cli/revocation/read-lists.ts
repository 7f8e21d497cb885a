import type { Command } from 'commander'
import { ownMembers } from '../../../attestation/own-members.ts'
import { readSource } from '../read-source.ts'
import { type ParsedList, parseLists } from './parse-list.ts'
import { RevocationListError } from './revocation-list-error.ts'

/** Largest file of lists, bytes: some 100,000 certificates. */
export const LISTS_BYTES_MAX = 4 * 1024 * 1024
/** Longest that a list may take to be fetched, milliseconds. */
const LISTS_TIMEOUT_MS = 30_000

/** Where revocation lists are, as commander gives it. */
export type RevocationOptions = { readonly crl?: readonly string[] }

/** Adds the option that names revocation lists. */
export function addRevocationOption(command: Command): Command {
  return command.option(
    '--crl <file|url>',
    'refuse certificates in this revocation list (DER or PEM, verified against the chain); may be repeated',
    (text: string, before: readonly string[] = []) => [...before, text],
  )
}

/**
 * Gives the lists that the options name, by file or http(s) URL, made by `nowMs`. Throws CliError,
 * RevocationListError.
 */
export async function readRevocationLists(
  options: RevocationOptions,
  nowMs: number,
): Promise<readonly ParsedList[]> {
  const { crl: sources = [] } = ownMembers(options)
  const given = { apiKey: null, stdin: process.stdin, bytesMax: LISTS_BYTES_MAX, timeoutMs: LISTS_TIMEOUT_MS }
  const files = await Promise.all(
    sources.map(async (source) => parseLists(await readSource(source, given), source)),
  )
  const lists = files.flat()
  const early = lists.find(({ thisUpdateMs }) => thisUpdateMs > nowMs)
  if (early === undefined) return lists
  const begins = new Date(early.thisUpdateMs).toISOString()
  const message = `expected a list that is in force, got one that begins ${begins}`
  throw new RevocationListError('not_yet_valid', { source: early.source, message })
}
