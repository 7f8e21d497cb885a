import { Command } from 'commander'
import { VERSION } from '../runtime/version.ts'
import { registerAccounts } from './commands/accounts.ts'
import { registerAttestation } from './commands/attestation.ts'
import { registerAudit } from './commands/audit.ts'
import { registerCompletions } from './commands/completions.ts'
import { registerContract } from './commands/contract.ts'
import { registerEnclaves } from './commands/enclaves.ts'
import { registerEvidence } from './commands/evidence.ts'
import { registerKeys } from './commands/keys.ts'
import { registerMeasure } from './commands/measure.ts'
import { registerNode } from './commands/node.ts'
import { registerRedact } from './commands/redact.ts'
import { registerRelayer } from './commands/relayer.ts'
import { registerRelease } from './commands/release.ts'
import { registerVerify } from './commands/verify.ts'

/**
 * Gives the whole command line. Every command is a file of commands/ that registers itself here.
 */
export function createProgram(): Command {
  const program = new Command('affidavit')
    .description('Check sworn evidence of completions, and run the gateway that hands it out.')
    .version(VERSION, '--version', 'print the version')
    .helpCommand(false)
    .showHelpAfterError('(--help tells more)')
    .addHelpText('after', '\nExit codes: 0 done, 1 failed (or a check did), 2 not understood.')
  registerVerify(program)
  registerAudit(program)
  registerEvidence(program)
  registerRedact(program)
  registerAttestation(program)
  registerMeasure(program)
  registerRelease(program)
  registerKeys(program)
  registerAccounts(program)
  registerEnclaves(program)
  registerRelayer(program)
  registerContract(program)
  registerNode(program)
  registerCompletions(program)
  return program
}
