from voice_agent.cli import main

main()
