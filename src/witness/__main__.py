from witness.cli.main import main

main()
