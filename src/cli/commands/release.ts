import type { Command } from 'commander'
import { addReleaseTrustOptions } from '../options.ts'
import type { SignOptions } from '../release/release-files.ts'
import type { ShowOptions } from '../release/release-report.ts'
import { registerReleaseList } from './release-list.ts'

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
    .action(async (file: string) => (await releaseFiles()).createKey(file))
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
    .action(async (file: string, options: SignOptions) => (await releaseFiles()).signFile(file, options))
  addReleaseTrustOptions(
    release
      .command('show')
      .description('show a signed release or list, and whether its signatures hold')
      .argument('<source>', 'a file, an http(s) URL, or - for standard input'),
  )
    .option('--at <time>', 'what of a list is accepted in a document made then (default: now)')
    .option('--json', 'print one JSON object')
    .action(async (source: string, options: ShowOptions) => {
      const { showFile } = await import('../release/release-report.ts')
      await showFile(source, options)
    })
  registerReleaseList(release)
}

/** Loaded where they are used: other commands start without them. */
function releaseFiles() {
  return import('../release/release-files.ts')
}
