import { setTimeout as sleep } from 'node:timers/promises'
import type { Command } from 'commander'
import { printable } from '../../../attestation/report/printable.ts'
import type { EnclaveDescription } from '../../enclaves/enclave-acts.ts'
import { CliError, inWords } from '../faults.ts'
import type { GatewayOperations } from '../operations.ts'
import { type JsonOption, operations, printList } from './operator.ts'

const POLL_MS = 500

export function registerEnclaves(program: Command): void {
  const enclaves = program
    .command('enclaves')
    .description(
      'show and change the enclaves of the running gateway (CONTROL_SOCKET, or DATA_DIR)',
    )
    .helpCommand(false)
  enclaves
    .command('list')
    .description('list all enclaves and their states')
    .option('--json', 'print one JSON array')
    .action(listEnclaves)
  enclaves
    .command('add')
    .description('check an enclave and take it into use; also an enclave that was drained')
    .argument('<url>', 'unix:/path/to/socket')
    .action(addEnclave)
  enclaves
    .command('drain')
    .description(
      'give it no new calls, and wait until all its records are committed: then it may be stopped',
    )
    .argument('<url>', 'as list shows it')
    .option('--no-wait', 'return at once; list shows when it is drained')
    .action(drainEnclave)
  enclaves
    .command('remove')
    .description('remove an enclave that is drained, refused or out of reach')
    .argument('<url>', 'as list shows it')
    .action(removeEnclave)
}

async function listEnclaves(options: JsonOption): Promise<void> {
  const { withGateway } = await operations()
  const list = await withGateway(({ enclaves }) => enclaves.list({}))
  printList(list.enclaves, options, { titles: TITLES, toRow })
}

async function addEnclave(url: string): Promise<void> {
  const added = await (await operations()).withGateway(async ({ enclaves }) => {
    await inWords(enclaves.add({ url }), refusals(url))
    return find(enclaves, url)
  })
  if (added?.state !== 'usable')
    throw new CliError(
      `${printable(url)} is ${added?.state ?? 'gone'}: ${printable(added?.fault ?? '')}`,
    )
  process.stderr.write(`${printable(url)} is in use, notary ${added.notary}.\n`)
}

async function drainEnclave(url: string, { wait }: { readonly wait: boolean }): Promise<void> {
  await (await operations()).withGateway(async ({ enclaves }) => {
    await inWords(enclaves.drain({ url }), refusals(url))
    while (wait) {
      const enclave = await find(enclaves, url)
      if (enclave === undefined) throw new CliError(`${printable(url)} was removed in the meantime`)
      if (enclave.state === 'drained') break
      if (enclave.state === 'unreachable')
        throw new CliError(
          `${printable(url)} is out of reach; a part of its log may not be committed`,
        )
      if (enclave.state !== 'draining')
        throw new CliError(`${printable(url)} is ${enclave.state} again`)
      await sleep(POLL_MS)
    }
  })
  process.stderr.write(
    wait
      ? `${printable(url)} is drained: all its records are committed, and it may be stopped.\n`
      : `${printable(url)} gets no new calls; it may be stopped when list shows that it is drained.\n`,
  )
}

async function removeEnclave(url: string): Promise<void> {
  const { withGateway } = await operations()
  await inWords(
    withGateway(({ enclaves }) => enclaves.remove({ url })),
    refusals(url),
  )
  process.stderr.write(
    `${printable(url)} is removed. After a restart, the gateway uses ENCLAVE_URL.\n`,
  )
}

async function find(
  enclaves: GatewayOperations['enclaves'],
  url: string,
): Promise<EnclaveDescription | undefined> {
  const path = (text: string) => text.replace(/^unix:(\/\/(?=\/))?/, '')
  const list = await enclaves.list({})
  return list.enclaves.find((enclave) => path(enclave.url) === path(url))
}

function refusals(url: string) {
  return {
    validation_failed: `expected unix: and the absolute path of a socket, got ${printable(url)}`,
    limit_reached: 'the gateway already has the most enclaves that it can have: remove one first',
    not_found: `the gateway has no enclave at ${printable(url)}`,
    enclave_in_use: `${printable(url)} is in use: drain it first`,
  }
}

const TITLES = ['URL', 'STATE', 'CALLS', 'COMMITTED', 'NOTARY', 'FAULT']

function toRow(enclave: EnclaveDescription): readonly string[] {
  const { url, state, calls, committed, notary, fault } = enclave
  return [
    url,
    state,
    String(calls),
    committed === null ? '-' : String(committed),
    notary ?? '-',
    fault || '-',
  ]
}
