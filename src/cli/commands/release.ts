import type { Command } from 'commander'
import { nameRelease } from '../../../attestation/release/accepted-releases.ts'
import type { Release } from '../../../attestation/release/release.ts'
import { signRelease } from '../../../attestation/release/verify-release.ts'
import { CliError, EXIT_CODES } from '../exit-codes.ts'
import { printable } from '../printable.ts'
import {
  addReleaseTrustOptions,
  type ReleaseOptions,
  readReleaseTrust,
} from '../release/accepted-releases.ts'
import {
  createKeyFiles,
  readReleaseFile,
  readSecretKey,
  readUnsignedRelease,
  writeReleaseFile,
} from '../release/release-files.ts'
import { parseListTime } from '../release/release-list.ts'
import {
  checkSignaturesHold,
  judgeReleaseFile,
  printReleaseJson,
  printReleaseText,
} from '../release/release-report.ts'
import { registerReleaseList } from './release-list.ts'

type SignOptions = { readonly key: string; readonly output?: string; readonly uncommitted?: boolean }
type ShowOptions = Omit<ReleaseOptions, 'release'> & { readonly at?: string; readonly json?: boolean }

/** Adds `release key | sign | show | list`: measurements of enclave images, signed for those who check records. */
export function registerRelease(program: Command): void {
  const release = program
    .command('release')
    .summary('sign and show which enclave images are acceptable')
    .description(
      'Sign the measurements of an enclave image, keep the list of accepted ones, and show either.',
    )
    .helpCommand(false)
  release
    .command('key')
    .summary('make a key that signs releases')
    .description(
      'Make a key that signs releases. The private key is written to FILE, the public one to FILE.pub and printed.',
    )
    .argument('<file>', 'where to write it; nothing there is replaced')
    .action(createKey)
  release
    .command('sign')
    .summary("sign an image's measurements.json")
    .description(
      "Sign an image's measurements.json as the image builder wrote it, in place; or add a signature to one that has others.",
    )
    .argument('<file>', 'measurements.json')
    .requiredOption('--key <file>', 'private release key, or - for standard input')
    .option('--output <file>', 'write it there instead')
    .option('--uncommitted', 'sign an image of uncommitted sources, which nobody else can rebuild')
    .action(signFile)
  addReleaseTrustOptions(
    release
      .command('show')
      .description('show a signed release or list, and whether its signatures hold')
      .argument('<source>', 'a file, an http(s) URL, or - for standard input'),
  )
    .option('--at <time>', 'what of a list is accepted in a document made then (default: now)')
    .option('--json', 'print one JSON object')
    .action(showFile)
  registerReleaseList(release)
}

async function createKey(file: string): Promise<void> {
  const publicKey = await createKeyFiles(file)
  process.stderr.write(
    `The private key is in ${printable(file)}: keep it off every machine that serves. Publish this key:\n`,
  )
  process.stdout.write(`${publicKey}\n`)
}

async function signFile(file: string, { key, output, uncommitted = false }: SignOptions): Promise<void> {
  const given = await readUnsignedRelease(file)
  const [release, others] = given.format === null ? [given.payload, []] : [given.release, given.signatures]
  if (given.format !== null) checkSignaturesHold({ kind: 'release', signed: given }, file)
  checkCommitted(release, uncommitted)
  const signed = signRelease(release, await readSecretKey(key), others)
  const place = output ?? file
  await writeReleaseFile(place, signed)
  process.stderr.write(
    `${printable(nameRelease(release))} has ${signed.signatures.length} signature(s) in ${printable(place)}.\n`,
  )
}

/** The mark that the image builder puts on the version of an image that the commit alone does not give. */
const UNCOMMITTED = /\+uncommitted$/

function checkCommitted({ version }: Release, isAllowed: boolean): void {
  if (isAllowed || !UNCOMMITTED.test(version)) return
  throw new CliError(
    `release ${version} is of uncommitted sources, which nobody else can rebuild: commit and build, or say --uncommitted`,
  )
}

async function showFile(source: string, options: ShowOptions): Promise<void> {
  const trust = await readReleaseTrust(options)
  const atMs = Date.parse(parseListTime(options.at ?? 'now', Date.now()))
  const report = judgeReleaseFile(await readReleaseFile(source), { trust, atMs })
  process.stdout.write(options.json ? printReleaseJson(report) : printReleaseText(report))
  process.exitCode = report.isOk ? EXIT_CODES.done : EXIT_CODES.failed
}
