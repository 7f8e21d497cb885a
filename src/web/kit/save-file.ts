export function saveFile(name: string, text: string, type = 'application/json'): void {
  const url = URL.createObjectURL(new Blob([text], { type }))
  const link = document.createElement('a')
  link.href = url
  link.download = name
  link.click()
  // The URL is released later, because some browsers read it some time after the click.
  setTimeout(() => URL.revokeObjectURL(url), 60_000)
}
