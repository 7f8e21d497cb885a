import { randomBytes } from 'node:crypto'
import { type Command, InvalidArgumentError } from 'commander'
import { printable } from '#attestation/report/printable.ts'
import type { RelayerDescription } from '../../chain/relayer-acts.ts'
import { createFile } from '../files.ts'
import { parseRpcUrl, parseSeconds, TRANSACTION_TIMEOUT_SECONDS } from '../options.ts'
import { timeCell } from '../printable.ts'
import type { WithdrawOptions } from '../relayer-withdrawal.ts'
import { type JsonOption, operations, printList } from './operator.ts'

export function registerRelayer(program: Command): void {
  const relayer = program
    .command('relayer')
    .description(
      'show the accounts that pay for anchors: balance, nonces, pending anchors ' +
        '(CONTROL_SOCKET, or DATA_DIR)',
    )
    .option('--json', 'print one JSON array')
    .action(showRelayers)
    .helpCommand(false)
  relayer
    .command('key')
    .summary("create a relayer's key")
    .description(
      "Create a relayer's key for RELAYER_PRIVATE_KEY and write it to FILE. The address of its " +
        'account, which needs ether, is printed.',
    )
    .argument('<file>', 'where to write it; an existing file is not replaced')
    .action(createRelayerKey)
  relayer
    .command('withdraw')
    .summary('withdraw the ether that is left in a retired relayer')
    .description(
      'Wait until all anchors of the relayer of RELAYER_PRIVATE_KEY are confirmed, and send ' +
        'its remaining ether to another account. Only for a relayer that no gateway uses: a ' +
        'transfer takes a nonce, and an anchor with the same nonce would be lost until a gateway ' +
        'makes it again.',
    )
    .requiredOption('--rpc <url>', "JSON-RPC endpoint of the gateways' chain", parseRpcUrl)
    .requiredOption('--to <address>', 'account that receives the ether', parseAddress)
    .option(
      '--leave <ether>',
      'ether to leave in the account: a rollup also charges for data',
      parseAmount,
      '0',
    )
    .option(
      '--timeout <seconds>',
      "longest wait for the transfer's block",
      parseSeconds,
      TRANSACTION_TIMEOUT_SECONDS,
    )
    .action(async (options: WithdrawOptions) => {
      const { runWithdrawal } = await import('../relayer-withdrawal.ts')
      await runWithdrawal(options)
    })
}

function parseAddress(text: string): string {
  if (/^0x[0-9a-f]{40}$/i.test(text)) return text
  throw new InvalidArgumentError('expected 0x and 40 hex digits')
}

function parseAmount(text: string): string {
  if (/^\d{1,9}(\.\d{1,18})?$/.test(text)) return text
  throw new InvalidArgumentError('expected ether such as 0.001')
}

async function createRelayerKey(file: string): Promise<void> {
  const { relayerAddress } = await import('../../chain/sign-anchor.ts')
  const key = `0x${randomBytes(32).toString('hex')}`
  await createFile(file, `${key}\n`, 0o600)
  process.stderr.write(`The key is in ${printable(file)}. Send ether to this address:\n`)
  process.stdout.write(`${relayerAddress(key)}\n`)
}

async function showRelayers(options: JsonOption): Promise<void> {
  const { formatEther } = await import('ethers')
  const list = await (await operations()).withGateway(({ relayers }) => relayers.list({}))
  printList(list.relayers, options, { titles: TITLES, toRow: (one) => toRow(one, formatEther) })
}

const TITLES = [
  'RELAYER',
  'USED',
  'ETHER',
  'MINED',
  'SENT',
  'NEXT',
  'PENDING',
  'UNCONFIRMED',
  'OLDEST',
  'FAULT',
]

function toRow(
  relayer: RelayerDescription,
  formatEther: (wei: string) => string,
): readonly string[] {
  const { balance_wei: balance, oldest_at: oldest } = relayer
  return [
    relayer.address,
    relayer.current ? 'now' : 'before',
    balance === null ? '-' : formatEther(balance),
    cell(relayer.chain_nonce),
    cell(relayer.pending_nonce),
    cell(relayer.next_nonce),
    String(relayer.pending),
    String(relayer.unconfirmed),
    timeCell(oldest),
    printable(relayer.fault) || '-',
  ]
}

function cell(value: number | null): string {
  return value === null ? '-' : String(value)
}
