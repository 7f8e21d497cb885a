import { setTimeout as sleep } from 'node:timers/promises'
import type { Command } from 'commander'
import { printable } from '#attestation/report/printable.ts'
import type { EnclaveDescription } from '../../enclaves/enclave-acts.ts'
import { ActRefused, CliError, inWords } from '../faults.ts'
import type { GatewayOperations, GatewayProcesses } from '../operations.ts'
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
  const { withGatewayProcesses } = await operations()
  printList(await withGatewayProcesses(listAtAll), options, { titles: TITLES, toRow })
}

/** Describes each enclave once, as all processes together use it. */
async function listAtAll(processes: GatewayProcesses): Promise<readonly EnclaveDescription[]> {
  const lists = await Promise.all(processes.map(({ enclaves }) => enclaves.list({})))
  const urls = new Set(lists.flatMap(({ enclaves }) => enclaves.map(({ url }) => url)))
  return [...urls].map((url) => {
    const found = lists.map(({ enclaves }) => enclaves.find((enclave) => enclave.url === url))
    const known = found.filter((enclave) => enclave !== undefined)
    const committed = known.flatMap((enclave) => enclave.committed ?? [])
    return {
      url,
      state: [...new Set(found.map((enclave) => enclave?.state ?? 'absent'))].join(', '),
      notary: known.find(({ notary }) => notary !== null)?.notary ?? null,
      calls: known.reduce((sum, { calls }) => sum + calls, 0),
      committed: committed.length === 0 ? null : Math.max(...committed),
      fault: known.find(({ fault }) => fault !== '')?.fault ?? '',
    }
  })
}

async function addEnclave(url: string): Promise<void> {
  const notary = await (await operations()).withGatewayProcesses(async (processes) => {
    let added: EnclaveDescription | undefined
    for (const { enclaves } of processes) {
      await inWords(enclaves.add({ url }), refusals(url))
      added = await find(enclaves, url)
      if (added?.state !== 'usable')
        throw new CliError(
          `${printable(url)} is ${added?.state ?? 'gone'}: ${printable(added?.fault ?? '')}`,
        )
    }
    return added?.notary
  })
  process.stderr.write(`${printable(url)} is in use, notary ${notary}.\n`)
}

async function drainEnclave(url: string, { wait }: { readonly wait: boolean }): Promise<void> {
  await (await operations()).withGatewayProcesses(async (processes) => {
    const users = await actAtAll(processes, url, (enclaves) => enclaves.drain({ url }))
    while (wait && !(await isDrained(users, url))) await sleep(POLL_MS)
  })
  process.stderr.write(
    wait
      ? `${printable(url)} is drained: all its records are committed, and it may be stopped.\n`
      : `${printable(url)} gets no new calls; it may be stopped when list shows that it is drained.\n`,
  )
}

/** False while a process drains the enclave. Throws CliError if a process ended the drain. */
async function isDrained(users: readonly GatewayOperations[], url: string): Promise<boolean> {
  const found = await Promise.all(users.map(({ enclaves }) => find(enclaves, url)))
  const states = found.map((enclave) => enclave?.state)
  if (states.includes(undefined))
    throw new CliError(`${printable(url)} was removed in the meantime`)
  if (states.includes('unreachable'))
    throw new CliError(`${printable(url)} is out of reach; a part of its log may not be committed`)
  const other = states.find((state) => state !== 'drained' && state !== 'draining')
  if (other !== undefined) throw new CliError(`${printable(url)} is ${other} again`)
  return !states.includes('draining')
}

async function removeEnclave(url: string): Promise<void> {
  const { withGatewayProcesses } = await operations()
  await withGatewayProcesses((processes) =>
    actAtAll(processes, url, (enclaves) => enclaves.remove({ url })),
  )
  process.stderr.write(
    `${printable(url)} is removed. After a restart, the gateway uses ENCLAVE_URL.\n`,
  )
}

/**
 * Returns the processes that have the enclave. A process that started again may not have it. Throws
 * CliError if no process has it, or if a process refuses the act.
 */
async function actAtAll(
  processes: GatewayProcesses,
  url: string,
  act: (enclaves: GatewayOperations['enclaves']) => Promise<unknown>,
): Promise<readonly GatewayOperations[]> {
  const users: GatewayOperations[] = []
  const { not_found: unknown, ...others } = refusals(url)
  for (const one of processes) {
    try {
      await inWords(act(one.enclaves), others)
      users.push(one)
    } catch (fault) {
      if (!(fault instanceof ActRefused && fault.code === 'not_found')) throw fault
    }
  }
  if (users.length === 0) throw new CliError(unknown)
  return users
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
