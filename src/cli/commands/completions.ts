import { Argument, type Command } from 'commander'

export function registerCompletions(program: Command): void {
  const name = program.name()
  program
    .command('completions')
    .description('print tab completions for a shell, for its start-up file')
    .addArgument(new Argument('<shell>', 'the shell').choices(SHELLS))
    .addHelpText(
      'after',
      [
        '',
        'Load them with:',
        `  bash   source <(${name} completions bash)`,
        `  zsh    source <(${name} completions zsh)`,
        `  fish   ${name} completions fish | source`,
      ].join('\n'),
    )
    .action((shell: Shell) => {
      process.stdout.write(writeCompletions(program, shell))
    })
}

const SHELLS = ['bash', 'zsh', 'fish'] as const
type Shell = (typeof SHELLS)[number]

/** One place in the command line: the words before it, and the words that may follow. */
type Level = {
  readonly path: string
  readonly words: readonly Word[]
  readonly takesFiles: boolean
}
type Word = { readonly text: string; readonly about: string }

/**
 * Returns a script that completes commands, options and choices. In other places, the script
 * completes file names.
 */
export function writeCompletions(program: Command, shell: Shell): string {
  const levels = listLevels(program, program.name())
  switch (shell) {
    case 'bash':
      return writeBash(program.name(), levels)
    case 'zsh':
      return writeZsh(program.name(), levels)
    case 'fish':
      return writeFish(program.name(), levels)
  }
}

function listLevels(command: Command, path: string): readonly Level[] {
  const help = command.createHelp()
  const commands = help.visibleCommands(command)
  const choices = command.registeredArguments.flatMap(
    (argument: Argument) => argument.argChoices ?? [],
  )
  const words = [
    ...commands.map((child) => ({ text: child.name(), about: child.description() })),
    ...choices.map((choice) => ({ text: choice, about: '' })),
    ...help
      .visibleOptions(command)
      .map((option) => ({ text: option.long ?? option.flags, about: option.description })),
  ]
  const takesFiles = command.registeredArguments.length > 0 && choices.length === 0
  const below = commands.flatMap((child) => listLevels(child, `${path} ${child.name()}`))
  return [{ path, words, takesFiles }, ...below]
}

function writeBash(name: string, levels: readonly Level[]): string {
  const steps = levels.slice(1).map((level) => quote(level.path))
  const cases = levels.map(
    (level) =>
      `    ${quote(level.path)}) words=${quote(level.words.map((word) => word.text).join(' '))} ;;`,
  )
  return `_${name}() {
  local current=\${COMP_WORDS[COMP_CWORD]} level=${name} words= position
  for ((position = 1; position < COMP_CWORD; position++)); do
    case "$level \${COMP_WORDS[position]}" in
      ${steps.join(' | ')}) level="$level \${COMP_WORDS[position]}" ;;
    esac
  done
  case "$level" in
${cases.join('\n')}
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _${name} ${name}
`
}

function writeZsh(name: string, levels: readonly Level[]): string {
  const steps = levels.slice(1).map((level) => quote(level.path))
  const cases = levels.map((level) => {
    const words = level.words.map((word) =>
      quote(`${word.text.replaceAll(':', '\\:')}:${word.about}`),
    )
    return `    (${quote(level.path)}) candidates=(${words.join(' ')}) ;;`
  })
  return `#compdef ${name}
_${name}() {
  local level=${name} word
  local -a candidates
  for word in \${words[2,CURRENT-1]}; do
    case "$level $word" in
      (${steps.join('|')}) level="$level $word" ;;
    esac
  done
  case "$level" in
${cases.join('\n')}
  esac
  _describe ${name} candidates || _files
}
compdef _${name} ${name}
`
}

function writeFish(name: string, levels: readonly Level[]): string {
  const steps = levels.slice(1).map((level) => quote(level.path))
  const lines = levels.flatMap((level) => [
    ...level.words.map((word) => writeFishWord(name, level, word)),
    ...(level.takesFiles
      ? []
      : [`complete -c ${name} -n ${quote(`__${name}_at ${level.path}`)} -f`]),
  ])
  return `function __${name}_at
  set -l level ${name}
  for word in (commandline -opc)[2..]
    switch "$level $word"
      case ${steps.join(' ')}
        set level "$level $word"
    end
  end
  test "$level" = "$argv"
end
${lines.join('\n')}
`
}

function writeFishWord(name: string, level: Level, word: Word): string {
  const condition = quote(`__${name}_at ${level.path}`)
  const about = word.about === '' ? '' : ` -d ${quote(word.about)}`
  const what = word.text.startsWith('--') ? `-l ${word.text.slice(2)}` : `-a ${quote(word.text)}`
  return `complete -c ${name} -n ${condition} ${what}${about}`
}

/** Inside single quotes, only a single quote is special in all three shells. */
function quote(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`
}
