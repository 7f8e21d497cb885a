import type { Command } from 'commander'
import { addReleaseTrustOptions } from '../options.ts'
import type { SignOptions } from '../release/release-files.ts'
import type {
  AddOptions,
  EndOptions,
  RenewOptions,
  RevokeOptions,
} from '../release/release-list.ts'
import type { ShowOptions } from '../release/release-report.ts'

export function registerRelease(program: Command): void {
  const release = program
    .command('release')
    .summary('sign and show which enclave images are acceptable')
    .description(
      'Sign the measurements of an enclave image, keep the list of accepted releases, and show both.',
    )
    .helpCommand(false)
  release
    .command('key')
    .summary('create a key that signs releases')
    .description(
      'Create a key that signs releases. The private key is written to FILE, the public one to ' +
        'FILE.pub and printed.',
    )
    .argument('<file>', 'where to write it; an existing file is not replaced')
    .action(async (file: string) => (await releaseFiles()).createReleaseKey(file))
  release
    .command('sign')
    .summary("sign an image's measurements.json")
    .description(
      "Sign an image's measurements.json in place, as the image builder wrote it. A signed " +
        'file gets a further signature.',
    )
    .argument('<file>', 'measurements.json')
    .requiredOption('--key <file>', 'private release key, or - for standard input')
    .option('--output <file>', 'write it there instead')
    .option('--uncommitted', 'sign an image of uncommitted sources, which others cannot rebuild')
    .action(async (file: string, options: SignOptions) =>
      (await releaseFiles()).signFile(file, options),
    )
  addReleaseTrustOptions(
    release
      .command('show')
      .description('show a signed release or list, and whether its signatures hold')
      .argument('<source>', 'a file, an http(s) URL, or - for standard input'),
  )
    .option('--at <time>', 'show what a list accepts for a document of this time (default: now)')
    .option('--json', 'print one JSON object')
    .action(async (source: string, options: ShowOptions) => {
      const { showFile } = await import('../release/release-report.ts')
      await showFile(source, options)
    })
  registerReleaseList(release)
}

/** Loads the modules only when needed, so other commands start faster. */
function releaseFiles() {
  return import('../release/release-files.ts')
}

function registerReleaseList(release: Command): void {
  const list = release
    .command('list')
    .summary('keep the signed list of accepted releases')
    .description(
      'Keep the signed list of accepted releases, with their times. Each change signs the list ' +
        'again, with a later time of issue; other signers must sign it again, too (sign).',
    )
    .helpCommand(false)
  editing(
    list
      .command('add')
      .description('accept a signed release; the list is made if it does not exist'),
  )
    .argument('<list>', 'releases.json')
    .argument('<file>', 'measurements.json, signed by a --release-key, or without one by --key')
    .option(
      '--from <time>',
      'accepted in documents made from then on: now, or 2026-11-21T14:00:00Z',
    )
    .option('--until <time>', 'and before then')
    .action(async (path: string, release: string, options: AddOptions) =>
      (await lists()).addToList(path, release, options),
    )
  editing(list.command('end').description('accept a release only in documents made before a time'))
    .argument('<list>', 'releases.json')
    .argument('<release>', NAME)
    .requiredOption('--at <time>', 'now, or 2026-11-21T14:00:00Z')
    .action(async (path: string, release: string, options: EndOptions) =>
      (await lists()).endInList(path, release, options),
    )
  editing(
    list.command('revoke').description('never accept a release again, for documents of any time'),
  )
    .argument('<list>', 'releases.json')
    .argument('<release>', NAME)
    .requiredOption('--reason <text>', 'the reason, for readers whose records fail')
    .action(async (path: string, release: string, options: RevokeOptions) =>
      (await lists()).revokeInList(path, release, options),
    )
  editing(
    list
      .command('renew')
      .description('issue the same list again, signed by --key alone; use it to change signers'),
  )
    .argument('<list>', 'releases.json')
    .action(async (path: string, options: RenewOptions) => (await lists()).renewList(path, options))
  list
    .command('sign')
    .description('sign a list that was written by hand, or add a signature to a signed one')
    .argument('<list>', 'releases.json; written by hand it is {"issued_at": …, "releases": […]}')
    .requiredOption('--key <file>', 'private release key, or - for standard input')
    .action(async (path: string, options: { readonly key: string }) =>
      (await lists()).signList(path, options),
    )
}

const NAME = 'its version, or 7 digits or more of its commit or PCR0'

function editing(command: Command): Command {
  return addReleaseTrustOptions(
    command.requiredOption('--key <file>', 'private release key, or - for standard input'),
  )
}

function lists() {
  return import('../release/release-list.ts')
}
