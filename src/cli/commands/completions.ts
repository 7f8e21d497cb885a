import { Argument, type Command } from 'commander'
import { SHELLS, type Shell, writeCompletions } from '../shell-completions.ts'

/** Adds `completions SHELL`, which prints the shell's completions of the whole command line. */
export function registerCompletions(program: Command): void {
  program
    .command('completions')
    .description('print tab completions for a shell, to be loaded by its start-up file')
    .addArgument(new Argument('<shell>', 'the shell').choices(SHELLS))
    .addHelpText(
      'after',
      [
        '',
        'Load them with:',
        '  bash   source <(affidavit completions bash)',
        '  zsh    source <(affidavit completions zsh)',
        '  fish   affidavit completions fish | source',
      ].join('\n'),
    )
    .action((shell: Shell) => {
      process.stdout.write(writeCompletions(program, shell))
    })
}
