import type { Command } from 'commander'
import type { RelayerDescription } from '../../api/control-operations.ts'
import { printable, timeCell } from '../printable.ts'
import { type JsonOption, operations, printList } from './operator.ts'

/** Adds `relayer`, for the operator of a gateway that runs. */
export function registerRelayer(program: Command): void {
  program
    .command('relayer')
    .description(
      'show the accounts that pay for anchors: balance, nonces, anchors that wait (CONTROL_SOCKET, or DATA_DIR)',
    )
    .option('--json', 'print one JSON array')
    .action(showRelayers)
}

async function showRelayers(options: JsonOption): Promise<void> {
  const { formatEther } = await import('ethers')
  const list = await (await operations()).withGateway(({ relayers }) => relayers.list())
  printList(list, options, { titles: TITLES, toRow: (one) => toRow(one, formatEther) })
}

const TITLES = [
  'RELAYER',
  'USED',
  'ETHER',
  'MINED',
  'PENDING',
  'NEXT',
  'WAITING',
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
    String(relayer.waiting),
    String(relayer.unconfirmed),
    timeCell(oldest),
    printable(relayer.fault) || '-',
  ]
}

function cell(value: number | null): string {
  return value === null ? '-' : String(value)
}
